// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	eventsv1 "k8s.io/api/events/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
)

// The files of others are those that were reviewed.
func TestAssets_of_others_are_unchanged(t *testing.T) {
	for name, want := range map[string]string{
		"htmx.min.js":   "a0abb04f2f45a1f89d1d4844023245537e5e6014c87b144553e0607b4cc32130",
		"hx-sse.min.js": "18ef2761356ec1fe0bb6d92612315b37517a7c1e9856b661c5ae81fef239d103",
		"htmx-LICENSE":  "d3d2456f76414f2456104660ebd65aff1c04cd7966b942bdabd63f3cdb316a38",
	} {
		content, err := files.ReadFile("assets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		if sum := sha256.Sum256(content); hex.EncodeToString(sum[:]) != want {
			t.Errorf("%s has the hash %x", name, sum)
		}
	}
}

// quoting says little, so that tests see what the page makes of it.
type quoting struct{ Sayings }

func (quoting) Meaning(reason string) string { return "meaning of " + reason }
func (quoting) Rollout(fleet.Object) Rollout {
	return Rollout{Reason: "Settled", Counts: []StageCount{{"failed", 1}, {"done", 999}}}
}
func (quoting) Attention(*flotillav1.MemberCluster, func(string) bool) []Row { return nil }
func (quoting) When(event *eventsv1.Event) *metav1.Time                      { return &event.CreationTimestamp }

func (quoting) Why(context.Context, fleet.Object, string) (Answer, error) {
	return Answer{}, errors.New("no")
}

func (quoting) Differences(fleet.Object, []string, func(string) map[string]string) ([]Difference, error) {
	return []Difference{{Changes: []string{"replicas 3 → 5"}, Clusters: []string{"eu-1"}}}, nil
}

// fixture is a fleet of three members and one object.
func fixture() *model {
	m := &model{number: 1, link: link{live: true}, hub: HubState{Context: "prod", Manager: "manager alive", Alive: true}, memberNamed: map[string]*memberFacts{}, objectNamed: map[string]*objectFacts{}, labels: []string{"region"}}
	for name, is := range map[string]state{"eu-1": stateReady, "eu-2": stateUnreachable, "us-1": stateRefused} {
		facts := &memberFacts{MemberCluster: &flotillav1.MemberCluster{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{"region": name[:2]}}}, State: is}
		if is != stateReady {
			facts.Unmet = metav1.Condition{Status: metav1.ConditionFalse, Reason: "Timeout", Message: "<b>no answer</b>"}
		}
		m.members, m.memberNamed[name] = append(m.members, facts), facts
	}
	redis := &flotillav1.Redis{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "cache"}}
	object := &objectFacts{
		Object: redis, name: "redis/shop/cache", kind: fleet.Redis, clusters: []string{"eu-1", "eu-2"}, degraded: true,
		entries: []flotillav1.ClusterStatus{{Name: "eu-1", Ready: metav1.ConditionFalse, Reason: "OOMKilled"}},
		unwell:  []Row{{Object: "redis/shop/cache", Cluster: "eu-1", Ready: metav1.ConditionFalse, Reason: "OOMKilled", Message: "too little"}},
	}
	m.objects, m.objectNamed[object.name] = []*objectFacts{object}, object
	return m
}

func TestDocument_shows_each_screen(t *testing.T) {
	render := newRenderer(quoting{}, "--context=prod")
	for address, test := range map[string]struct {
		status int
		want   []string
	}{
		"/":                          {200, []string{`id="m-eu-2" class="t s1"`, "eu-2: unreachable, Timeout", "<b>1<i>/3</i></b>", "OOMKilled", "kubectl flotilla status --all --context=prod", "&lt;b&gt;no answer"}},
		"/?by=region":                {200, []string{"eu <small>1/2</small>", "us <small>0/1</small>"}},
		"/?show=unreachable":         {200, []string{`id="m-eu-1" class="t s6 dim"`, `id="m-eu-2" class="t s1"`, "Members: unreachable"}},
		"/?show=degraded":            {200, []string{`id="m-eu-2" class="t s1 dim"`, "Objects: degraded"}},
		"/?by=nothing&show=nothing":  {200, []string{"without nothing"}},
		"/members/eu-2":              {200, []string{"kubectl get membercluster eu-2 -o yaml --context=prod", "redis/shop/cache"}},
		"/members/nobody":            {404, []string{"<code>/members/nobody</code>"}},
		"/objects/redis/shop/cache":  {200, []string{"kubectl flotilla rollout status redis/cache -n shop --context=prod", `class="st-failed"`, "replicas 3 → 5", `href="/why/eu-1/redis/shop/cache"`}},
		"/why/eu-1/redis/shop/cache": {200, []string{`hx-get="/answer/eu-1/redis/shop/cache"`, "kubectl flotilla why redis/cache -n shop -c eu-1 --context=prod"}},
		"/why/eu-1/redis/shop/other": {404, nil},
		"/events":                    {200, []string{"There are no warnings."}},
		"/<script>":                  {404, []string{"/&lt;script&gt;"}},
	} {
		t.Run(strings.NewReplacer("/", "_", "?", "_").Replace(address), func(t *testing.T) {
			where, err := url.Parse(address)
			if err != nil {
				t.Fatal(err)
			}
			content, status, err := render.document(fixture(), where)
			if err != nil || status != test.status {
				t.Fatalf("the status is %d (%v)", status, err)
			}
			for _, want := range test.want {
				if !strings.Contains(string(content), want) {
					t.Errorf("the page lacks %q:\n%s", want, content)
				}
			}
			if left := string(content); strings.Contains(left, "data-slot") || strings.Contains(left, "data-head") {
				t.Error("a place is left empty")
			}
		})
	}
}

func TestDocument_says_since_when_it_is_old(t *testing.T) {
	m := fixture()
	m.link = link{asOf: time.Date(2026, 11, 25, 10, 20, 30, 0, time.UTC), trouble: "connection refused"}
	content, _, err := newRenderer(quoting{}, "").document(m, &url.URL{Path: "/"})
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`<header id="head" class="stale">`, "as of 10:20:30 UTC", "connection refused"} {
		if !strings.Contains(string(content), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
}

func TestStateOf(t *testing.T) {
	const good, bad = metav1.ConditionTrue, metav1.ConditionFalse
	for name, test := range map[string]struct {
		conditions []metav1.Condition
		urgency    int
		want       state
	}{
		"no status":                   {nil, 1, stateJoining},
		"ready":                       {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: good}}, 3, stateReady},
		"objects that are not ready":  {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: good}}, 2, stateUnwell},
		"a credential that ends soon": {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: good}, {Type: flotillav1.ConditionCredentialsAccepted, Status: good, Reason: flotillav1.ReasonExpiresSoon}}, 3, stateEnding},
		"unreachable":                 {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: bad}, {Type: flotillav1.ConditionReachable, Status: bad}}, 0, stateUnreachable},
		"refused":                     {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: bad}, {Type: flotillav1.ConditionCredentialsAccepted, Status: bad}}, 0, stateRefused},
		"claimed by another":          {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: bad}, {Type: flotillav1.ConditionClaimed, Status: bad}}, 0, stateRefused},
		"caches that do not fill":     {[]metav1.Condition{{Type: flotillav1.ConditionReady, Status: bad}, {Type: flotillav1.ConditionCachesSynced, Status: bad}}, 0, stateNotReady},
	} {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			if got := stateOf(&flotillav1.MemberCluster{Status: flotillav1.MemberClusterStatus{Conditions: test.conditions}}, test.urgency); got != test.want {
				t.Errorf("the state is %s", got)
			}
		})
	}
}

func TestRunnable_is_the_command_in_what_to_do(t *testing.T) {
	for next, want := range map[string]string{
		"kubectl flotilla rollout undo redis/cache -n shop, or correct it": "kubectl flotilla rollout undo redis/cache -n shop",
		"kubectl flotilla tree redis/cache -n shop shows more":             "kubectl flotilla tree redis/cache -n shop",
		"kubectl flotilla rollout resume nodepool/web":                     "kubectl flotilla rollout resume nodepool/web",
		"Give the hub a new credential":                                    "",
	} {
		if got := runnable(next); got != want {
			t.Errorf("%q has the command %q", next, got)
		}
	}
}
