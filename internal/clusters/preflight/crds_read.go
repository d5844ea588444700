// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"sigs.k8s.io/controller-runtime/pkg/client"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/registration"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
)

// FieldOwner is the field manager of objects that the pool applies in members.
const FieldOwner = client.FieldOwner("flotilla-pool")

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	// serveTime is how long an API server may take to serve an installed definition, serveStep the polling interval.
	serveTime = 15 * time.Second
	serveStep = 200 * time.Millisecond
)

// Read returns what the member serves of our API group, and its definitions. Definitions that cannot be read or parsed
// are marked as unread: it is sufficient that the member serves the kinds.
func (a *API) Read(ctx context.Context) (Served, error) {
	resources, err := a.served(ctx)
	if err != nil {
		return Served{}, fmt.Errorf("reading what is served: %w", err)
	}
	s := Served{Resources: resources}
	for _, own := range definitions() {
		state, err := a.readDefinition(ctx, own)
		if err != nil {
			return Served{}, fmt.Errorf("reading CustomResourceDefinition %q: %w", own.object.Name, err)
		}
		s.states = append(s.states, state)
	}
	return s, nil
}

// readDefinition reads and compares a definition.
func (a *API) readDefinition(ctx context.Context, own definition) (definitionState, error) {
	body, err := a.get(ctx, definitionsPath+own.object.Name)
	if status := verdict.StatusError(0); errors.As(err, &status) {
		switch status {
		case http.StatusNotFound:
			return definitionState{absent: true}, nil
		case http.StatusForbidden:
			return definitionState{unread: true}, nil
		}
	}
	if err != nil {
		return definitionState{}, err
	}
	theirs := &apiextensionsv1.CustomResourceDefinition{}
	if err := json.Unmarshal(body, theirs); err != nil {
		return definitionState{unread: true}, nil //nolint:nilerr // An unreadable definition is the member's concern, and means no more than that.
	}
	return stateOf(own, theirs), nil
}

// Glance reads only the metadata of the definitions, which is cheap and sufficient to detect changes.
func (a *API) Glance(ctx context.Context) (Served, error) {
	s := Served{}
	for _, own := range definitions() {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		err := a.Client.Get(ctx, client.ObjectKeyFromObject(own.object), metadata)
		switch {
		case apierrors.IsNotFound(err):
			s.states = append(s.states, definitionState{absent: true})
		case verdict.IsForbidden(err):
			s.states = append(s.states, definitionState{unread: true})
		case err != nil:
			return Served{}, fmt.Errorf("reading CustomResourceDefinition %q: %w", own.object.Name, err)
		default:
			s.states = append(s.states, definitionState{seen: seen(string(metadata.UID), metadata.Generation, metadata.DeletionTimestamp != nil)})
		}
	}
	return s, nil
}

// Install installs our definitions where they are missing or outdated, and waits until they are served. It returns what
// the member serves afterwards. If the member must not be written, or upgrades are forbidden, its definitions stay as
// they are.
func (a *API) Install(ctx context.Context, before Served) (Served, error) {
	for i, state := range before.states {
		if !state.outdated() {
			continue
		}
		own := definitions()[i]
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(own.object)
		if err != nil {
			return before, fmt.Errorf("encoding CustomResourceDefinition %q: %w", own.object.Name, err)
		}
		desired := &unstructured.Unstructured{Object: fields}
		desired.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		unstructured.RemoveNestedField(desired.Object, "status")
		unstructured.RemoveNestedField(desired.Object, "metadata", "creationTimestamp")
		err = a.Client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), FieldOwner, client.ForceOwnership)
		if _, held := errors.AsType[*clusters.HeldError](err); held {
			return before, nil
		}
		if verdict.IsForbidden(err) {
			if !state.absent {
				before.forbidden = true
				return before, nil
			}
			return before, verdict.RefuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonForbidden,
				"The member does not allow the manager to create and patch customresourcedefinitions.apiextensions.k8s.io; apply config/member/crd_installer.yaml there")
		}
		if err != nil {
			return before, fmt.Errorf("installing CustomResourceDefinition %q: %w", own.object.Name, err)
		}
	}
	after := before
	err := wait.PollUntilContextTimeout(ctx, serveStep, serveTime, true, func(ctx context.Context) (bool, error) {
		var err error
		after, err = a.Read(ctx)
		return err == nil && CheckServed(after.Resources) == nil, err
	})
	if err != nil && !wait.Interrupted(err) {
		return before, err
	}
	return after, ctx.Err()
}

// Settle installs missing and outdated definitions if the manager is responsible for them and mayInstall permits writes
// to the member. It refuses a member that does not serve our kinds afterwards.
func (c Checker) Settle(ctx context.Context, api *API, found *Findings, mayInstall bool) error {
	if c.InstallCRDs && mayInstall && found.Served.Outdated() {
		after, err := api.Install(ctx, found.Served)
		if err != nil {
			return err
		}
		after.Denied = found.Served.Denied
		found.Served = after
	}
	if refused := CheckServed(found.Served.Resources); refused != nil {
		return refused
	}
	found.Verdicts[flotillav1.ConditionAPIsServed] = found.Served.Verdict(c.InstallCRDs)
	return nil
}

// Recheck reads again what an engaged member serves and allows. It returns an error if the member does not answer or is
// refused.
func Recheck(ctx context.Context, api *API, registered *registration.Registration) (Served, error) {
	now, err := api.Read(ctx)
	if err != nil {
		return now, err
	}
	if refused := CheckServed(now.Resources); refused != nil {
		return now, refused
	}
	now.Denied, err = CheckRights(ctx, api, registered)
	return now, err
}
