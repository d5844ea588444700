module github.com/flotilla-dev/flotilla/hack/image

go 1.26.3
