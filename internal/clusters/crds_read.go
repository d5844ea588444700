// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

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
)

// fieldOwner is the field manager of what the pool applies in members.
const fieldOwner = client.FieldOwner("flotilla-pool")

const (
	definitionsPath = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/"
	// serveTime is how long an API server may take to serve a definition that was installed, serveStep how often it is asked.
	serveTime = 15 * time.Second
	serveStep = 200 * time.Millisecond
)

// read reads what the member serves of our group and its definitions. What may not be read, or is not one, is marked as
// unread: that the member serves the kinds is enough to work with it.
func (a *memberAPI) read(ctx context.Context) (served, error) {
	resources, err := a.served(ctx)
	if err != nil {
		return served{}, fmt.Errorf("reading what is served: %w", err)
	}
	s := served{resources: resources}
	for _, own := range definitions() {
		state, err := a.readDefinition(ctx, own)
		if err != nil {
			return served{}, fmt.Errorf("reading CustomResourceDefinition %q: %w", own.object.Name, err)
		}
		s.states = append(s.states, state)
	}
	return s, nil
}

// readDefinition reads a whole definition.
func (a *memberAPI) readDefinition(ctx context.Context, own definition) (definitionState, error) {
	body, err := a.get(ctx, definitionsPath+own.object.Name)
	if status := statusError(0); errors.As(err, &status) {
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
		return definitionState{unread: true}, nil //nolint:nilerr // What is no definition tells nothing, and is the member's.
	}
	return stateOf(own, theirs), nil
}

// glance reads what a change of the definitions shows in, which costs little.
func (a *memberAPI) glance(ctx context.Context) (served, error) {
	s := served{}
	for _, own := range definitions() {
		metadata := &metav1.PartialObjectMetadata{}
		metadata.SetGroupVersionKind(apiextensionsv1.SchemeGroupVersion.WithKind("CustomResourceDefinition"))
		err := a.client.Get(ctx, client.ObjectKeyFromObject(own.object), metadata)
		switch {
		case apierrors.IsNotFound(err):
			s.states = append(s.states, definitionState{absent: true})
		case isForbidden(err):
			s.states = append(s.states, definitionState{unread: true})
		case err != nil:
			return served{}, fmt.Errorf("reading CustomResourceDefinition %q: %w", own.object.Name, err)
		default:
			s.states = append(s.states, definitionState{seen: seen(string(metadata.UID), metadata.Generation, metadata.DeletionTimestamp != nil)})
		}
	}
	return s, nil
}

// install puts our definitions where a member has none or older ones, and waits until they are served. It returns what
// the member serves then. A member that may not be written, or does not allow it, keeps what it has.
func (a *memberAPI) install(ctx context.Context, before served) (served, error) {
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
		err = a.client.Apply(ctx, client.ApplyConfigurationFromUnstructured(desired), fieldOwner, client.ForceOwnership)
		if _, held := errors.AsType[*HeldError](err); held {
			return before, nil
		}
		if isForbidden(err) {
			if !state.absent {
				before.forbidden = true
				return before, nil
			}
			return before, refuseMember(flotillav1.ConditionAPIsServed, flotillav1.ReasonForbidden,
				"The member does not allow the manager to create and patch customresourcedefinitions.apiextensions.k8s.io; apply config/member/crd_installer.yaml there")
		}
		if err != nil {
			return before, fmt.Errorf("installing CustomResourceDefinition %q: %w", own.object.Name, err)
		}
	}
	after := before
	err := wait.PollUntilContextTimeout(ctx, serveStep, serveTime, true, func(ctx context.Context) (bool, error) {
		var err error
		after, err = a.read(ctx)
		return err == nil && checkServed(after.resources) == nil, err
	})
	if err != nil && !wait.Interrupted(err) {
		return before, err
	}
	return after, ctx.Err()
}

// settle makes a member serve our kinds as far as that is the manager's business, and says whether it does.
func (p *Pool) settle(ctx context.Context, api *memberAPI, found *findings, mayInstall bool) error {
	if p.cfg.InstallCRDs && mayInstall && found.served.outdated() {
		after, err := api.install(asOwn(ctx), found.served)
		if err != nil {
			return err
		}
		after.denied = found.served.denied
		found.served = after
	}
	if refused := checkServed(found.served.resources); refused != nil {
		return refused
	}
	found.verdicts[flotillav1.ConditionAPIsServed] = found.served.verdict(p.cfg.InstallCRDs)
	return nil
}
