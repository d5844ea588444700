// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"slices"
	"time"

	"github.com/spf13/cobra"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/plugin/condition"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/text"
)

func newExpiries(t *tool) *cobra.Command {
	var within time.Duration
	var output string
	c := &cobra.Command{
		Use:   "expiries",
		Short: "List when the hub's credentials end, the soonest first",
		Long: `List when the hub's credentials for its members end, the soonest first. Credentials that do not say when they end come
last. With --within the command fails when one ends in that time, for example in a CronJob.`,
		Example: `  kubectl flotilla expiries
  kubectl flotilla expiries --within 720h`,
		Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return t.expiries(c.Context(), within, output) },
	}
	c.Flags().DurationVar(&within, "within", 0, "Fail when a credential ends in this time, or has ended")
	addOutput(c, &output, "name")
	return c
}

func (t *tool) expiries(ctx context.Context, within time.Duration, output string) error {
	hub, err := t.Hub()
	if err != nil {
		return err
	}
	members, err := hub.Members(ctx)
	if err != nil {
		return err
	}
	slices.SortStableFunc(members, func(a, b flotillav1.MemberCluster) int {
		switch endA, endB := endOf(&a), endOf(&b); {
		case endA.IsZero() == endB.IsZero():
			return endA.Compare(endB)
		case endA.IsZero():
			return 1
		}
		return -1
	})
	rows, items := make([][]console.Cell, 0, len(members)), make([]expiryItem, 0, len(members))
	soon := []string{}
	for i := range members {
		member := &members[i]
		state := condition.Accepted(member)
		kind, end, left := "", "-", console.Cell{Text: "-"}
		if member.Status.Credentials != nil {
			kind, left = member.Status.Credentials.Kind, t.credentialCell(member)
		}
		items = append(items, expiryItem{Member: member.Name, Credential: kind, Ends: at(endOf(member)), State: state.Reason})
		if ends := endOf(member); !ends.IsZero() {
			end = ends.UTC().Format(time.RFC3339)
			if within > 0 && ends.Before(t.Clock.Now().Add(within)) {
				soon = append(soon, member.Name)
			}
		}
		rows = append(rows, []console.Cell{{Text: member.Name}, {Text: console.OrDash(kind)}, {Text: end}, left, {Text: console.OrDash(state.Reason), Colour: console.ForStatus(state.Status)}})
	}
	if output == "" {
		t.Table([]string{"MEMBER", "CREDENTIAL", "ENDS", "IN", "STATE"}, rows)
	} else if err := printItems(t, output, items); err != nil {
		return err
	}
	if len(soon) > 0 {
		return console.Faultf("run kubectl flotilla rotate for each", "the credentials of %s end within %s", text.List(soon, 10), within)
	}
	return nil
}

// endOf returns when the credential of a member ends; zero when it does not say.
func endOf(member *flotillav1.MemberCluster) time.Time {
	if member.Status.Credentials == nil || member.Status.Credentials.ExpirationTime == nil {
		return time.Time{}
	}
	return member.Status.Credentials.ExpirationTime.Time
}
