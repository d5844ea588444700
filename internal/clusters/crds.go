// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"bytes"
	"encoding/json"
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
	"github.com/flotilla-dev/flotilla/internal/text"
)

// MissingField is a field of our schema that a member's lacks.
type MissingField struct {
	// Path names it, such as spec.taints[].effect; "*" stands for the keys of a map.
	Path string
	// Default is what our schema fills in, as canonical JSON; empty when it fills in nothing.
	Default string
}

// definition is a CustomResourceDefinition of ours.
type definition struct {
	kind   string
	object *apiextensionsv1.CustomResourceDefinition
}

// definitions are the CustomResourceDefinitions that a member needs, as this manager knows them. Nobody changes them.
var definitions = sync.OnceValue(func() []definition {
	var all []definition
	for _, raw := range [][]byte{crd.NodePools, crd.Redises} {
		object := &apiextensionsv1.CustomResourceDefinition{}
		utilruntime.Must(yaml.UnmarshalStrict(raw, object))
		all = append(all, definition{kind: object.Spec.Names.Kind, object: object})
	}
	return all
})

// revisionOf numbers the schemas of a definition; one that has no number is older than all that have.
func revisionOf(object *apiextensionsv1.CustomResourceDefinition) int64 {
	revision, err := strconv.ParseInt(object.Annotations[flotillav1.AnnotationCRDRevision], 10, 64)
	if err != nil {
		return 0
	}
	return revision
}

// schemaOf is the schema of our version, or nil.
func schemaOf(object *apiextensionsv1.CustomResourceDefinition) *apiextensionsv1.JSONSchemaProps {
	for i := range object.Spec.Versions {
		version := &object.Spec.Versions[i]
		if version.Name == flotillav1.GroupVersion.Version && version.Served && version.Schema != nil {
			return version.Schema.OpenAPIV3Schema
		}
	}
	return nil
}

// definitionState is what is known about one of our definitions in a member.
type definitionState struct {
	// seen differs whenever the definition has changed; empty when there is none or it may not be read.
	seen                     string
	absent, deleting, unread bool
	// revision is the number that it has in the member; ours is the manager's.
	revision, ours int64
	// lacks are the fields of spec that it lacks, lacksStatus the paths of those of status, lacking the paths of all.
	lacks                []MissingField
	lacksStatus, lacking []string
	// more says that it has what ours lacks.
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
		// What is served tells that the version is missing.
		return state
	}
	compareSchemas(ourSchema, theirSchema, "", func(path string, field *apiextensionsv1.JSONSchemaProps) {
		state.lacking = append(state.lacking, path)
		// A copy has no placement.
		if strings.HasPrefix(path, "spec.") && path != "spec.placement" && !strings.HasPrefix(path, "spec.placement.") {
			state.lacks = append(state.lacks, MissingField{Path: path, Default: defaultOf(field)})
		}
		if strings.HasPrefix(path, "status.") {
			state.lacksStatus = append(state.lacksStatus, path)
		}
	})
	compareSchemas(theirSchema, ourSchema, "", func(string, *apiextensionsv1.JSONSchemaProps) { state.more = true })
	state.more = state.more || len(theirs.Spec.Versions) > len(own.object.Spec.Versions)
	return state
}

// seen identifies one state of a definition.
func seen(uid string, generation int64, deleting bool) string {
	return fmt.Sprintf("%s/%d/%t", uid, generation, deleting)
}

// older and newer say how the member's definition relates to ours. One that somebody has edited may be both.
func (s definitionState) older() bool {
	return !s.absent && !s.unread && (len(s.lacking) > 0 || s.revision < s.ours)
}

func (s definitionState) newer() bool {
	return !s.absent && !s.unread && (s.more || s.revision > s.ours)
}

// outdated says that ours may take the place of what the member has. It never does where that would be a step back.
func (s definitionState) outdated() bool {
	return s.absent || s.older() && !s.newer() && !s.deleting
}

// compareSchemas calls found for each field of a schema that another one lacks; not for the fields below such a field.
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

// defaultOf is what an API server fills in for a field that is not set, as canonical JSON; empty when that is nothing.
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

// fillDefaults fills in the defaults of the fields below a default, as an API server does.
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

// decoded is a default of our own schema.
func decoded(raw *apiextensionsv1.JSON) any {
	var value any
	decoder := json.NewDecoder(bytes.NewReader(raw.Raw))
	decoder.UseNumber()
	utilruntime.Must(decoder.Decode(&value))
	return value
}

// served is what a member serves of our group, and what its definitions are like.
type served struct {
	resources []string
	// states are in the order of definitions; there are none before they have been read.
	states []definitionState
	// forbidden says that the member does not allow the manager to upgrade them; it is not tried again before a change.
	forbidden bool
	// denied are the rights that are missing.
	denied denials
}

// identity differs whenever one of the definitions has changed.
func (s served) identity() string {
	parts := make([]string, 0, len(s.states))
	for _, state := range s.states {
		parts = append(parts, state.seen)
	}
	return strings.Join(parts, " ")
}

// lacks lists, by kind, the fields of spec that the member lacks.
func (s served) lacks() map[string][]MissingField {
	return byKind(s, func(state definitionState) []MissingField { return state.lacks })
}

// lacksStatus lists, by kind, the fields of status that the member lacks.
func (s served) lacksStatus() map[string][]string {
	return byKind(s, func(state definitionState) []string { return state.lacksStatus })
}

// byKind collects what there is for each kind; nil when there is nothing.
func byKind[T any](s served, of func(definitionState) []T) map[string][]T {
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

// tell puts what the member's definitions are like into its snapshot.
func (s served) tell(snapshot *Snapshot) {
	snapshot.Lacks, snapshot.LacksStatus, snapshot.Definitions = s.lacks(), s.lacksStatus(), s.identity()
}

// names are the names of the definitions in a state.
func (s served) names(in func(definitionState) bool) []string {
	var names []string
	for i, state := range s.states {
		if in(state) {
			names = append(names, definitions()[i].object.Name)
		}
	}
	return names
}

// outdated says that some definition is to be installed or upgraded, where that is the manager's business.
func (s served) outdated() bool {
	return !s.forbidden && slices.ContainsFunc(s.states, definitionState.outdated)
}

// verdict is condition APIsServed of a member that serves a kind at least.
func (s served) verdict(installs bool) verdict {
	remedy := "apply config/member there"
	if names := s.names(func(state definitionState) bool { return state.deleting }); len(names) > 0 {
		if installs {
			remedy = "they are put back when they are gone"
		}
		return verdict{status: "False", reason: flotillav1.ReasonCRDMissing, message: fmt.Sprintf(
			"The member is deleting %s and with them every object of the kind; %s", strings.Join(names, ", "), remedy)}
	}
	if kinds, names := s.denied.missed(); len(kinds) > 0 {
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
		return good(flotillav1.ReasonVersionSkew, message+"; "+remedy)
	}
	message := "Every kind is served and allowed"
	switch {
	case len(s.names(func(state definitionState) bool { return state.unread })) > 0:
		message += "; the CRDs may not be read, so a field that they lack shows when it is written"
	case len(s.names(definitionState.newer)) > 0:
		message += ", by newer CRDs than the manager's"
	}
	return good(flotillav1.ReasonAllServed, message)
}
