//go:build deps

package testenv

import (
	_ "github.com/google/go-cmp/cmp"
	_ "github.com/onsi/gomega"
	_ "github.com/spf13/viper"
	_ "golang.org/x/sync/errgroup"
	_ "golang.org/x/sync/semaphore"
	_ "golang.org/x/net/http2"
	_ "golang.org/x/time/rate"
	_ "k8s.io/client-go/kubernetes"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/utils/clock/testing"
	_ "sigs.k8s.io/controller-runtime/pkg/envtest"
	_ "sigs.k8s.io/yaml"
	_ "github.com/spf13/pflag"
	_ "github.com/prometheus/client_golang/prometheus"
	_ "github.com/evanphx/json-patch/v5"
)
