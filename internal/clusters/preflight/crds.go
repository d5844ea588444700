// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package preflight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/yaml"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/config/crd"
	"github.com/flotilla-dev/flotilla/internal/clusters"
	"github.com/flotilla-dev/flotilla/internal/clusters/kinds"
	"github.com/flotilla-dev/flotilla/internal/clusters/verdict"
	"github.com/flotilla-dev/flotilla/internal/text"
)

// CompareDefinition compares a member's CustomResourceDefinition of one of our kinds with the one of this build. It
// returns the fields of spec that the member's lacks, and both revisions.
func CompareDefinition(theirs *apiextensionsv1.CustomResourceDefinition) (lacks []clusters.MissingField, revision, ours int64, err error) {
	for _, own := range definitions() {
		if own.object.Name == theirs.Name {
			state := stateOf(own, theirs)
			return state.lacks, state.revision, state.ours, nil
		}
	}
	return nil, 0, 0, errors.New("no definition of ours is called " + theirs.Name)
}

// DefinitionNames returns the names of the CustomResourceDefinitions that a member needs.
func DefinitionNames() []string {
	var names []string
	for _, own := range definitions() {
		names = append(names, own.object.Name)
	}
	return names
}

// definition is one of our CustomResourceDefinitions.
type definition struct {
	kind   string
	object *apiextensionsv1.CustomResourceDefinition
}

// definitions returns the CustomResourceDefinitions that a member needs, as embedded in this build. They must not be
// modified.
var definitions = sync.OnceValue(func() []definition {
	var all []definition
	for _, raw := range [][]byte{crd.NodePools, crd.Redises} {
		object := &apiextensionsv1.CustomResourceDefinition{}
		utilruntime.Must(yaml.UnmarshalStrict(raw, object))
		all = append(all, definition{kind: object.Spec.Names.Kind, object: object})
	}
	return all
})

// revisionOf returns the schema revision of a definition. One without a revision is older than all others.
func revisionOf(object *apiextensionsv1.CustomResourceDefinition) int64 {
	revision, err := strconv.ParseInt(object.Annotations[flotillav1.AnnotationCRDRevision], 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// schemaOf returns the schema of our version, or nil.
func schemaOf(object *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
	for i := range object.Spec.Versions {
		version := &object.Spec.Versions[i]
		if version.Name == flotillav1.GroupVersion.Version && version.Served && version.Schema != nil {
			return version.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// definitionState describes one of our definitions in a member.
type definitionState struct {
	// seen changes whenever the definition changes. It is empty if the definition does not exist or cannot be read.
	seen                     string
	absent, deleting, unread bool
	// revision is the revision in the member, ours that of this build.
	revision, ours int64
	// lacks and lacksStatus are the fields of spec and status that the member's definition lacks. lacking holds the paths
	// of all such fields.
	lacks                []clusters.MissingField
	lacksStatus, lacking []string
	// more is true if it has something that ours lacks.
	more bool
}

// stateOf compares a member's definition with ours.
func stateOf(own definition, theirs *apiextensionsv1.CustomResourceDefinition) definitionState {
	state := definitionState{
		seen: seen(string(theirs.UID), theirs.Generation, theirs.DeletionTimestamp != nil), deleting: theirs.DeletionTimestamp != nil,
		revision: revisionOf(theirs), ours: revisionOf(own.object),
	}
	ourSchema, theirSchema := schemaOf(own.object), schemaOf(theirs)
	if theirSchema == nil {
		// Discovery reports the missing version.
		return state
	}
	compareSchemas(ourSchema, theirSchema, "", func(path string, field *apiextensionsv1.JSONSchemaProps) {
		state.lacking = append(state.lacking, path)
		// Copies have no placement.
		if strings.HasPrefix(path, "spec.") && path != "spec.placement" && !strings.HasPrefix(path, "spec.placement.") {
			state.lacks = append(state.lacks, clusters.MissingField{Path: path, Default: defaultOf(field)})
		}
		if strings.HasPrefix(path, "status.") {
			state.lacksStatus = append(state.lacksStatus, path)
		}
	})
	compareSchemas(theirSchema, ourSchema, "", func(string, *apiextensionsv1.JSONSchemaProps) { state.more = true })
	state.more = state.more || len(theirs.Spec.Versions) > len(own.object.Spec.Versions)
	return state
}

// seen identifies a state of a definition.
func seen(uid string, generation int64, deleting bool) string {
	return fmt.Sprintf("%s/%d/%t", uid, generation, deleting)
}

// older reports whether the member's definition is older than ours. For one that was edited, both older and newer may be
// true.
func (s definitionState) older() bool {
	return !s.absent && !s.unread && (len(s.lacking) > 0 || s.revision < s.ours)
}

func (s definitionState) newer() bool {
	return !s.absent && !s.unread && (s.more || s.revision > s.ours)
}

// outdated reports whether ours may replace the member's definition. It is false if that would be a downgrade, or if the
// definition is being deleted.
func (s definitionState) outdated() bool {
	return s.absent || s.older() && !s.newer() && !s.deleting
}

// compareSchemas calls found for each field of schema that other lacks, but not for fields below such a field. The
// structural schemas of apiextensions-apiserver compare an object with a schema, and not one schema with another.
func compareSchemas(schema, other *apiextensionsv1.JSONSchemaProps, path string, found func(string, *apiextensionsv1.JSONSchemaProps)) {
	if other.XPreserveUnknownFields != nil && *other.XPreserveUnknownFields {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(schema.Properties)) {
		field, at := schema.Properties[name], strings.TrimPrefix(path+"."+name, ".")
		if theirs, ok := other.Properties[name]; ok {
			compareSchemas(&field, &theirs, at, found)
			continue
		}
		found(at, &field)
	}
	if schema.Items != nil && schema.Items.Schema != nil && other.Items != nil && other.Items.Schema != nil {
		compareSchemas(schema.Items.Schema, other.Items.Schema, path+"[]", found)
	}
	if schema.AdditionalProperties != nil && schema.AdditionalProperties.Schema != nil &&
		other.AdditionalProperties != nil && other.AdditionalProperties.Schema != nil {
		compareSchemas(schema.AdditionalProperties.Schema, other.AdditionalProperties.Schema, path+".*", found)
	}
}

// defaultOf returns the default of a field as canonical JSON, or an empty string if there is none.
func defaultOf(schema *apiextensionsv1.JSONSchemaProps) string {
	if schema.Default == nil {
		return ""
	}
	value := decoded(schema.Default)
	fillDefaults(value, schema)
	document, err := json.Marshal(value)
	utilruntime.Must(err)
	return string(document)
}

// fillDefaults applies the defaults of the fields below a default, as an API server does.
func fillDefaults(value any, schema *apiextensionsv1.JSONSchemaProps) {
	fields, ok := value.(map[string]any)
	if !ok {
		return
	}
	for name, field := range schema.Properties {
		if _, set := fields[name]; !set && field.Default != nil {
			fields[name] = decoded(field.Default)
		}
		fillDefaults(fields[name], &field)
	}
}

// decoded decodes a default of our own schema.
func decoded(raw *apiextensionsv1.JSON) any {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw.Raw))
	decoder.UseNumber()
	utilruntime.Must(decoder.Decode(&value))
	return value
}

// Served describes what a member serves of our API group, and its definitions.
type Served struct {
	Resources []string
	// states are in the order of definitions. It is nil before they are read.
	states []definitionState
	// forbidden is true if the manager may not upgrade the definitions. It does not try again before they change.
	forbidden bool
	// Denied holds the permissions that are missing.
	Denied kinds.Denials
}

// Identity returns a string that changes whenever one of the definitions changes.
func (s Served) Identity() string {
	parts := make([]string, 0, len(s.states))
	for _, state := range s.states {
		parts = append(parts, state.seen)
	}
	return strings.Join(parts, " ")
}

// lacks returns, by kind, the fields of spec that the member lacks.
func (s Served) lacks() map[string][]clusters.MissingField {
	return byKind(s, func(state definitionState) []clusters.MissingField { return state.lacks })
}

// lacksStatus returns, by kind, the fields of status that the member lacks.
func (s Served) lacksStatus() map[string][]string {
	return byKind(s, func(state definitionState) []string { return state.lacksStatus })
}

// byKind collects a property of the states by kind. It returns nil if it is empty for all.
func byKind[T any](s Served, of func(definitionState) []T) map[string][]T {
	var found map[string][]T
	for i, state := range s.states {
		if len(of(state)) == 0 {
			continue
		}
		if found == nil {
			found = map[string][]T{}
		}
		found[definitions()[i].kind] = of(state)
	}
	return found
}

// Known reports whether the definitions have been read.
func (s Served) Known() bool { return s.states != nil }

// Incomplete reports whether a definition is missing or cannot be read.
func (s Served) Incomplete() bool {
	return slices.ContainsFunc(s.states, func(state definitionState) bool { return state.absent || state.unread })
}

// CheckSince refuses a member that no longer serves one of our kinds. A definition that has disappeared since before
// counts as not served, because its objects are gone with it and discovery may list the kind for some time.
func (s Served) CheckSince(before Served) *verdict.Refusal {
	var gone []string
	for i, state := range s.states {
		if state.absent && i < len(before.states) && !before.states[i].absent {
			gone = append(gone, definitions()[i].object.Name)
		}
	}
	if refused := refuseMissing(gone); refused != nil {
		return refused
	}
	return CheckServed(s.Resources)
}

// Describe copies the description of the member's definitions to its snapshot.
func (s Served) Describe(snapshot *clusters.Snapshot) {
	snapshot.Lacks, snapshot.LacksStatus, snapshot.Definitions = s.lacks(), s.lacksStatus(), s.Identity()
}

// names returns the names of the definitions whose state matches.
func (s Served) names(in func(definitionState) bool) []string {
	var names []string
	for i, state := range s.states {
		if in(state) {
			names = append(names, definitions()[i].object.Name)
		}
	}
	return names
}

// Outdated reports whether a definition is to be installed or upgraded, provided that the manager is responsible for
// them.
func (s Served) Outdated() bool {
	return !s.forbidden && slices.ContainsFunc(s.states, definitionState.outdated)
}

// Verdict returns condition APIsServed of a member that serves all our kinds. installs is true if the manager is
// responsible for the definitions.
func (s Served) Verdict(installs bool) verdict.Verdict {
	remedy := "apply config/member there"
	if names := s.names(func(state definitionState) bool { return state.deleting }); len(names) > 0 {
		if installs {
			remedy = "they are put back when they are gone"
		}
		return verdict.Verdict{Status: "False", Reason: flotillav1.ReasonCRDMissing, Message: fmt.Sprintf(
			"The member is deleting %s and with them every object of the kind; %s", strings.Join(names, ", "), remedy)}
	}
	if kinds, names := s.Denied.Missed(); len(kinds) > 0 {
		return deniedVerdict(kinds, names)
	}
	if names := s.names(definitionState.older); len(names) > 0 {
		message := "The member has older CRDs than the manager: " + strings.Join(names, ", ")
		var lacking []string
		for _, state := range s.states {
			lacking = append(lacking, state.lacking...)
		}
		if len(lacking) > 0 {
			slices.Sort(lacking)
			message = fmt.Sprintf("%s without %s", message, text.List(slices.Compact(lacking), 5))
		}
		if installs {
			remedy = "the manager may not or must not upgrade them"
		}
		return verdict.Good(flotillav1.ReasonVersionSkew, message+"; "+remedy)
	}
	message := "Every kind is served and allowed"
	switch {
	case len(s.names(func(state definitionState) bool { return state.unread })) > 0:
		message += "; the CRDs may not be read, so a field that they lack shows when it is written"
	case len(s.names(definitionState.newer)) > 0:
		message += ", by newer CRDs than the manager's"
	}
	return verdict.Good(flotillav1.ReasonAllServed, message)
}
