// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package plugin

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/fleet"
	"github.com/flotilla-dev/flotilla/internal/plugin/console"
	"github.com/flotilla-dev/flotilla/internal/plugin/site"
)

// placedKinds are the kinds that are placed.
var placedKinds = []fleet.Kind{fleet.Redis, fleet.NodePool}

// kindOf returns the kind of a hub object or a copy.
func kindOf(object fleet.Object) fleet.Kind {
	if _, ok := object.(*flotillav1.NodePool); ok {
		return fleet.NodePool
	}
	return fleet.Redis
}

// entriesOf returns what a hub object says about each cluster.
func entriesOf(object fleet.Object) []flotillav1.ClusterStatus { return kindOf(object).Entries(object) }

// clustersOf lists the clusters that a hub object is placed in, or will be.
func clustersOf(object fleet.Object) []string {
	names := slices.Clone(object.GetFleetStatus().PlacedIn)
	for _, entry := range entriesOf(object) {
		names = append(names, entry.Name)
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// placementOf returns the placement of a hub object; an empty one when there is none.
func placementOf(object fleet.Object) flotillav1.Placement {
	return ptr.Deref(object.GetPlacement(), flotillav1.Placement{})
}

// pathOf names an object as arguments do: redis/shop/cache.
func pathOf(kind, namespace, name string) string {
	return strings.ToLower(kind) + "/" + console.Qualified(namespace, name)
}

// memberPath names a member as the output does: membercluster/eu-1.
func memberPath(name string) string { return pathOf("MemberCluster", "", name) }

// nameOf names a hub object or a copy as arguments do.
func nameOf(object fleet.Object) string {
	return pathOf(kindOf(object).Name, object.GetNamespace(), object.GetName())
}

// target is a Redis or NodePool that an argument names.
type target struct {
	kind fleet.Kind
	key  client.ObjectKey
}

// oneObject accepts redis/NAME, or the same as two arguments, as kubectl does.
func oneObject(c *cobra.Command, args []string) error {
	if len(args) == 1 || len(args) == 2 && !strings.Contains(args[0], "/") {
		return nil
	}
	return fmt.Errorf("redis/NAME or nodepool/NAME is needed, and nothing else; see %s --help", c.CommandPath())
}

// parseTarget reads redis/NAME or nodepool/NAME.
func (t *tool) parseTarget(argument string) (target, error) {
	kindName, name, found := strings.Cut(argument, "/")
	of := target{key: client.ObjectKey{Name: name}}
	switch strings.TrimSuffix(strings.ToLower(kindName), "."+flotillav1.GroupVersion.Group) {
	case "redis", "redises":
		of.kind = fleet.Redis
		namespace, err := t.Namespace()
		if err != nil {
			return of, err
		}
		of.key.Namespace = namespace
	case "nodepool", "nodepools":
		of.kind = fleet.NodePool
	default:
		found = false
	}
	if !found || name == "" {
		return of, console.Faultf("write redis/NAME or nodepool/NAME, or redis NAME or nodepool NAME", "%q does not name an object", argument)
	}
	return of, nil
}

// String names the target as arguments do.
func (of target) String() string { return pathOf(of.kind.Name, of.key.Namespace, of.key.Name) }

// command returns a command about the target that can be pasted.
func (of target) command(name string) string { return fleet.Command(name, of.kind.Name, of.key) }

// read reads the target on the hub.
func (of target) read(ctx context.Context, hub *site.Site) (fleet.Object, error) {
	object := of.kind.New()
	return object, of.readInto(ctx, hub, object)
}

// readInto reads the target on the hub into an object of its kind, or of any.
func (of target) readInto(ctx context.Context, hub *site.Site, object client.Object) error {
	err := hub.Get(ctx, of.key, object)
	if apierrors.IsNotFound(err) {
		return console.Faultf("check the name and -n NAMESPACE; kubectl get redises,nodepools -A lists what there is", "%s has no %s", hub.Called, of)
	}
	return hub.Explain("reading "+of.String(), err)
}

// onHub returns the target that an argument names, and the hub.
func (t *tool) onHub(argument string) (target, *site.Site, error) {
	of, err := t.parseTarget(argument)
	if err != nil {
		return of, nil, err
	}
	hub, err := t.Hub()
	return of, hub, err
}

// placedOnHub returns the target that an argument names, the hub, and its object, which must be placed.
func (t *tool) placedOnHub(ctx context.Context, argument string) (target, *site.Site, fleet.Object, error) {
	of, hub, err := t.onHub(argument)
	if err != nil {
		return of, nil, nil, err
	}
	object, err := of.read(ctx, hub)
	if err == nil && object.GetPlacement() == nil {
		err = notPlaced(of)
	}
	return of, hub, object, err
}

// completeTargets completes the objects of the hub: redis/NAME, or NAME after redis.
func (t *tool) completeTargets(c *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
	if len(args) > 1 || len(args) == 1 && strings.Contains(args[0], "/") {
		return nil, cobra.ShellCompDirectiveNoFileComp
	}
	return t.CompleteFromHub(c, func(ctx context.Context, hub *site.Site) ([]string, error) {
		view, err := readFleet(ctx, hub)
		if err != nil {
			return nil, err
		}
		namespace, err := t.Namespace()
		if err != nil {
			return nil, err
		}
		var names []string
		for _, object := range view.objects {
			kind := strings.ToLower(kindOf(object).Name)
			switch {
			case object.GetNamespace() != "" && object.GetNamespace() != namespace:
			case len(args) == 0:
				names = append(names, kind+"/"+object.GetName())
			case strings.EqualFold(args[0], kind):
				names = append(names, object.GetName())
			}
		}
		return names, nil
	})
}
