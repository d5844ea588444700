// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight_test

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/clientcmd"
	clocktesting "k8s.io/utils/clock/testing"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/flotilla-dev/flotilla/internal/clusters/clusterstest"
	"github.com/flotilla-dev/flotilla/internal/clusters/preflight"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// contested is a member that several processes claim, each by its own clock.
type contested struct {
	t      *testing.T
	server *clusterstest.Server
	client client.Client
	// now is the time of the member, in its answers.
	now time.Time
}

// dating sets the time of the member in its answers.
type dating struct {
	*contested
	http.RoundTripper
}

func (d dating) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := d.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Header.Set("Date", d.now.UTC().Format(http.TimeFormat))
	}
	return resp, err
}

func newContested(t *testing.T) *contested {
	t.Helper()
	c := &contested{t: t, server: clusterstest.Start(t), now: time.Unix(1_600_000_000, 0)}
	config, err := clientcmd.RESTConfigFromKubeConfig(c.server.Kubeconfig())
	if err != nil {
		t.Fatal(err)
	}
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return preflight.Dated{RoundTripper: dating{c, next}} })
	mapper := apimeta.NewDefaultRESTMapper(nil)
	mapper.Add(coordinationv1.SchemeGroupVersion.WithKind("Lease"), apimeta.RESTScopeNamespace)
	mapper.Add(corev1.SchemeGroupVersion.WithKind("Namespace"), apimeta.RESTScopeRoot)
	if c.client, err = client.New(config, client.Options{Scheme: testenv.Scheme(), Mapper: mapper}); err != nil {
		t.Fatal(err)
	}
	return c
}

// process is one that claims the member.
type process struct {
	*contested
	claim *preflight.Claim
	clock *clocktesting.FakePassiveClock
}

// process returns one whose clock is ahead of others by a while.
func (c *contested) process(hubID, instance, name string, ahead time.Duration) *process {
	clk := clocktesting.NewFakePassiveClock(time.Unix(1_700_000_000, 0).Add(ahead))
	return &process{contested: c, clock: clk, claim: &preflight.Claim{
		HubID: hubID, Instance: instance, Process: name, Duration: 3 * time.Minute, Clock: clk,
	}}
}

// hold returns the reason of a refusal, "older" for a member that went back, and nothing when the claim is held.
func (p *process) hold(options ...func(*preflight.HoldOptions)) string {
	p.t.Helper()
	settings := preflight.HoldOptions{Member: "the-member"}
	for _, option := range options {
		option(&settings)
	}
	_, err := p.claim.Hold(context.Background(), p.client, settings)
	refused, young := &verdict.Refusal{}, &preflight.ClaimYoungError{}
	switch {
	case err == nil:
		return ""
	case errors.As(err, &young):
		return "in " + young.Left.String()
	case errors.As(err, &refused):
		return refused.Reason
	case errors.Is(err, preflight.ErrClaimOlder):
		return "older"
	default:
		p.t.Fatalf("holding the claim: %v", err)
		return ""
	}
}

// after lets time pass on the clock of the process, and in the member.
func (p *process) after(d time.Duration) *process {
	p.clock.SetTime(p.clock.Now().Add(d))
	p.now = p.now.Add(d)
	return p
}

// lease reads the claim.
func (c *contested) lease() *coordinationv1.Lease {
	c.t.Helper()
	lease := &coordinationv1.Lease{}
	if err := c.client.Get(context.Background(), client.ObjectKey{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}, lease); err != nil {
		c.t.Fatal(err)
	}
	return lease
}

// free deletes the claim, if there is one.
func (c *contested) free() {
	c.t.Helper()
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: preflight.ClaimNamespace, Name: preflight.ClaimName}}
	if err := client.IgnoreNotFound(c.client.Delete(context.Background(), lease)); err != nil {
		c.t.Fatal(err)
	}
}

func (c *contested) expect(what, got, want string) {
	c.t.Helper()
	if got != want {
		c.t.Errorf("%s: got %q, want %q", what, got, want)
	}
}

func TestClaim_of_another_instance_expires_by_the_own_clock(t *testing.T) {
	c := newContested(t)
	for name, ahead := range map[string]time.Duration{"in step": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		first, second := c.process("hub", "first-"+name, "a", 0), c.process("hub", "second-"+name, "b", ahead)
		c.free()
		c.expect(name+": the first one", first.hold(), "")
		c.expect(name+": at once", second.hold(), "Superseded")
		c.expect(name+": renewed", first.after(time.Minute).hold(), "")
		c.expect(name+": 2 minutes later", second.after(2*time.Minute).hold(), "Superseded")
		c.expect(name+": 3 minutes after it was seen to be renewed, less a second", second.after(3*time.Minute-time.Second).hold(), "Superseded")
		c.expect(name+": 3 minutes after it was seen to be renewed", second.after(time.Second).hold(), "")
		c.expect(name+": the first one again", first.after(4*time.Minute).hold(), "Superseded")
	}
}

func TestClaim_goes_to_the_next_process_of_an_instance_when_it_has_ended(t *testing.T) {
	c := newContested(t)
	first, second := c.process("hub", "i", "a", 0), c.process("hub", "i", "b", 0)
	c.expect("the first process", first.hold(), "")
	second.claim.Ended = func(process string) bool { return process == "a" }
	c.expect("the second process", second.hold(), "")
	for range 5 {
		c.expect("the first one does not take it back", first.after(time.Minute).hold(), "Superseded")
		c.expect("the second one renews it", second.hold(), "")
	}
	c.expect("the first one, before the second one has stopped writing", first.after(94*time.Second).hold(), "Superseded")
	c.expect("the first one, when the second one has stopped writing", first.after(time.Second).hold(), "")
}

func TestClaim_goes_to_the_next_process_of_an_instance_when_the_first_has_stopped_writing(t *testing.T) {
	c := newContested(t)
	for name, ahead := range map[string]time.Duration{"in step": 0, "an hour ahead": time.Hour, "an hour behind": -time.Hour} {
		first, second := c.process("hub", name, "a", 0), c.process("hub", name, "b", ahead)
		c.free()
		c.expect(name+": the first process", first.hold(), "")
		c.expect(name+": the second one after half a minute", second.after(20*time.Second).hold(), "in 1m5s")
		c.expect(name+": again", second.after(10*time.Second).hold(), "in 1m5s")
		c.expect(name+": again, a moment before", second.after(64*time.Second).hold(), "in 1s")
		c.expect(name+": in time", second.after(time.Second).hold(), "")
		c.expect(name+": the first one", first.hold(), "Superseded")
	}
}

// Two copies of a hub that were restored from one backup have the same identity.
func TestClaim_is_not_taken_from_a_process_that_is_alive(t *testing.T) {
	c := newContested(t)
	first, second := c.process("hub", "i", "a", 0), c.process("hub", "i", "b", 0)
	c.expect("the first process", first.hold(), "")
	c.expect("the second one", second.after(10*time.Second).hold(), "in 1m5s")
	for range 5 {
		c.expect("the first one renews it", first.after(50*time.Second).hold(), "")
		c.expect("the second one sees that", second.after(10*time.Second).hold(), "Superseded")
	}
	c.expect("the second one, when the first one is dead", second.after(85*time.Second).hold(), "")
}

// A member whose clock is set back, or that answers twice within a second, must not hide a renewal.
func TestClaim_shows_each_renewal(t *testing.T) {
	c := newContested(t)
	p := c.process("hub", "i", "a", 0)
	c.expect("acquired", p.hold(), "")
	for _, passed := range []time.Duration{0, time.Minute, -time.Hour, time.Minute} {
		before := c.lease()
		c.expect("renewed", p.after(passed).hold(), "")
		if after := c.lease(); !before.Spec.RenewTime.Before(after.Spec.RenewTime) {
			t.Errorf("%v later the claim was renewed at %v, and before at %v", passed, after.Spec.RenewTime, before.Spec.RenewTime)
		}
	}
}

func TestClaim_is_taken_over_from_the_named_hub_only(t *testing.T) {
	c := newContested(t)
	first, second := c.process("old", "i", "a", 0), c.process("new", "j", "b", 0)
	takeOver := func(hubID string) func(*preflight.HoldOptions) {
		return func(o *preflight.HoldOptions) { o.TakeOver = hubID }
	}
	frozen := func(o *preflight.HoldOptions) { o.RenewOnly = true }
	c.expect("the old hub", first.hold(), "")
	c.expect("the new hub", second.hold(), "ClaimedByAnotherHub")
	c.expect("an hour later", second.after(time.Hour).hold(), "ClaimedByAnotherHub")
	c.expect("for a third", second.hold(takeOver("third")), "ClaimedByAnotherHub")
	c.expect("in a freeze", second.hold(takeOver("old"), frozen), "ClaimedByAnotherHub")
	c.expect("for the old one", second.hold(takeOver("old")), "")
	c.expect("renewed in a freeze", second.after(time.Minute).hold(frozen), "")
	c.expect("the old hub finds out", first.after(time.Minute).hold(), "ClaimedByAnotherHub")
}

func TestClaim_that_is_older_than_what_was_written_means_a_restore(t *testing.T) {
	c := newContested(t)
	p := c.process("hub", "i", "a", 0)
	c.expect("acquired", p.hold(), "")
	backup := c.lease()
	c.expect("renewed", p.after(time.Minute).hold(), "")
	c.server.Put(backup)
	c.expect("restored", p.after(time.Minute).hold(), "older")
	c.expect("held after the member was read again", p.hold(), "")
	c.expect("another member under the name", p.hold(func(o *preflight.HoldOptions) { o.Member = "another" }), "")
}

// The answer to a renewal may be lost although the member has stored it.
func TestClaim_whose_answer_was_lost_is_still_held(t *testing.T) {
	c := newContested(t)
	p := c.process("hub", "i", "a", 0)
	c.expect("acquired", p.hold(), "")
	stored := c.lease()
	stored.Spec.RenewTime = new(metav1.NewMicroTime(p.after(time.Minute).clock.Now()))
	c.server.Put(stored)
	c.expect("renewed", p.after(time.Minute).hold(), "")
}
