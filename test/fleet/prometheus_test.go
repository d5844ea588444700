// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build drill

package fleet

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	. "github.com/onsi/gomega"

	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// prometheus is one that scrapes the suite's manager. Its rules are those of config/prometheus, in which a minute is a
// second; a scrape may take as long as the next one is away, because one that fails ends every alert for a moment.
type prometheus struct {
	url string
	// dir holds its configuration and its log.
	dir string
}

// startPrometheus runs one until the test ends.
func (f *fleet) startPrometheus(t *testing.T, target, token string) *prometheus {
	t.Helper()
	f.command(t, filepath.Join(f.root, "hack", "build.sh"), "prometheus")
	address := testenv.FreeAddress(t)
	p := &prometheus{url: "http://" + address, dir: t.TempDir()}
	p.write(t, "token", token)
	p.write(t, "alerts.yaml", fasterAlerts(t, f.root))
	p.write(t, "prometheus.yaml", `global: {scrape_interval: 5s, scrape_timeout: 5s, evaluation_interval: 1s}
rule_files: [alerts.yaml]
scrape_configs:
- job_name: flotilla
  scheme: https
  tls_config: {insecure_skip_verify: true}
  authorization: {credentials_file: token}
  static_configs: [{targets: ["`+target+`"]}]
`)
	log, err := os.Create(filepath.Join(p.dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = log.Close() }()
	cmd := exec.Command(filepath.Join(f.root, "bin", "prometheus"), "--config.file=prometheus.yaml", "--storage.tsdb.path=data", "--web.listen-address="+address)
	cmd.Dir, cmd.Stdout, cmd.Stderr = p.dir, log, log
	if err := cmd.Start(); err != nil {
		t.Fatalf("starting Prometheus: %v", err)
	}
	t.Cleanup(func() {
		slowest, _ := p.query("max_over_time(scrape_duration_seconds[2h])")
		failed, _ := p.query("count_over_time((up == 0)[2h:1s])")
		t.Logf("The slowest scrape: %v; for how many seconds there was none: %v", slowest, failed)
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() {
			said, _ := os.ReadFile(log.Name())
			t.Logf("Prometheus said:\n%s", said)
		}
	})
	var up []sample
	NewWithT(t).Eventually(func() []sample {
		up, _ = p.query(`up{job="flotilla"} == 1`)
		return up
	}, 30*time.Second, 200*time.Millisecond).Should(HaveLen(1), "Prometheus reads the metrics of the manager")
	return p
}

func (p *prometheus) write(t *testing.T, name, content string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(p.dir, name), []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}

// fasterAlerts are the rules of the product with every minute of a duration made a second. Thresholds stay as they are.
func fasterAlerts(t *testing.T, root string) string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config", "prometheus", "alerts.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	changed := 0
	faster := regexp.MustCompile(`(for: |\[)(\d+)([mh])`).ReplaceAllStringFunc(string(content), func(found string) string {
		duration, err := time.ParseDuration(strings.TrimLeft(found, "for: ["))
		if err != nil {
			t.Fatal(err)
		}
		changed++
		return strings.TrimRight(found, "0123456789mh") + strconv.Itoa(int(duration.Minutes())) + "s"
	})
	if changed < 10 {
		t.Fatalf("the rules have %d durations only", changed)
	}
	return faster
}

// ask reads what a path of the API says into data.
func (p *prometheus) ask(path string, data any) error {
	client := http.Client{Timeout: 10 * time.Second}
	answer, err := client.Get(p.url + path)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return err
	}
	whole := struct {
		Status, Error string
		Data          json.RawMessage
	}{}
	if err := json.Unmarshal(body, &whole); err != nil {
		return fmt.Errorf("%s: %w: %s", answer.Status, err, body)
	}
	if whole.Status != "success" {
		return fmt.Errorf("%s: %s", answer.Status, whole.Error)
	}
	return json.Unmarshal(whole.Data, data)
}

// sample is a series with its value now.
type sample struct {
	labels map[string]string
	value  float64
}

// query returns the series of an expression that have a number.
func (p *prometheus) query(expr string) ([]sample, error) {
	var data struct {
		Result []struct {
			Metric map[string]string
			Value  [2]any
		}
	}
	if err := p.ask("/api/v1/query?query="+url.QueryEscape(expr), &data); err != nil {
		return nil, err
	}
	var samples []sample
	for _, result := range data.Result {
		value, err := strconv.ParseFloat(fmt.Sprint(result.Value[1]), 64)
		if err != nil {
			return nil, err
		}
		if !math.IsNaN(value) {
			samples = append(samples, sample{labels: result.Metric, value: value})
		}
	}
	return samples, nil
}

// alerts lists the alerts in a state as "<name> <what it is about>", sorted. A rule that cannot be evaluated is listed, too.
func (p *prometheus) alerts(state string) []string {
	var data struct {
		Alerts []struct {
			Labels map[string]string
			State  string
		}
	}
	var rules struct {
		Groups []struct {
			Rules []struct{ Name, LastError string }
		}
	}
	for path, answer := range map[string]any{"/api/v1/alerts": &data, "/api/v1/rules": &rules} {
		if err := p.ask(path, answer); err != nil {
			return []string{err.Error()}
		}
	}
	found := []string{}
	for _, alert := range data.Alerts {
		if alert.State == state {
			found = append(found, strings.TrimSpace(alert.Labels["alertname"]+" "+alert.Labels["cluster"]+alert.Labels["kind"]+alert.Labels["controller"]))
		}
	}
	for _, group := range rules.Groups {
		for _, rule := range group.Rules {
			if rule.LastError != "" {
				found = append(found, rule.Name+": "+rule.LastError)
			}
		}
	}
	slices.Sort(found)
	return found
}

// panels returns the expressions of the dashboard by title and query, for all members.
func panels(t *testing.T, root string) map[string]string {
	t.Helper()
	content, err := os.ReadFile(filepath.Join(root, "config", "grafana", "fleet.json"))
	if err != nil {
		t.Fatal(err)
	}
	var dashboard struct {
		Panels []struct {
			ID      int
			Title   string
			Targets []struct{ RefID, Expr string }
		}
	}
	if err := json.Unmarshal(content, &dashboard); err != nil {
		t.Fatal(err)
	}
	found := map[string]string{}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			found[fmt.Sprintf("%d %s %s", panel.ID, panel.Title, target.RefID)] = strings.ReplaceAll(target.Expr, "$cluster", ".+")
		}
	}
	return found
}
