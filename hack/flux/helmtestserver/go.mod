// Stands for a module that only tests of source-controller import, and that module proxies do not have.
module github.com/fluxcd/pkg/helmtestserver

go 1.26.0
