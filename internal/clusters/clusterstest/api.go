// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusterstest

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	jsonpatch "github.com/evanphx/json-patch/v5"
	authorizationv1 "k8s.io/api/authorization/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	apimeta "k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"sigs.k8s.io/controller-runtime/pkg/client"
	"sigs.k8s.io/controller-runtime/pkg/client/apiutil"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/testenv"
)

// kind is one that is served.
type kind struct {
	gvk        schema.GroupVersionKind
	resource   string
	namespaced bool
}

// groupResource names it in errors.
func (k *kind) groupResource() schema.GroupResource {
	return schema.GroupResource{Group: k.gvk.Group, Resource: k.resource}
}

// kinds are all that the manager touches in a member.
var kinds = func() []*kind {
	served := func(group, version, kindName, resource string, namespaced bool) *kind {
		return &kind{schema.GroupVersionKind{Group: group, Version: version, Kind: kindName}, resource, namespaced}
	}
	ours := flotillav1.GroupVersion
	return []*kind{
		served(ours.Group, ours.Version, "Redis", "redises", true),
		served(ours.Group, ours.Version, "NodePool", "nodepools", false),
		served(ours.Group, ours.Version, "MemberCluster", "memberclusters", false),
		served("", "v1", "Node", "nodes", false),
		served("", "v1", "Namespace", "namespaces", false),
		served("", "v1", "Pod", "pods", true),
		served("", "v1", "Service", "services", true),
		served("", "v1", "ConfigMap", "configmaps", true),
		served("", "v1", "Secret", "secrets", true),
		served("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims", true),
		served("apps", "v1", "StatefulSet", "statefulsets", true),
		served("policy", "v1", "PodDisruptionBudget", "poddisruptionbudgets", true),
		served("node.k8s.io", "v1", "RuntimeClass", "runtimeclasses", false),
		served("coordination.k8s.io", "v1", "Lease", "leases", true),
		served("events.k8s.io", "v1", "Event", "events", true),
		served("apiextensions.k8s.io", "v1", "CustomResourceDefinition", "customresourcedefinitions", false),
	}
}()

// kindNamed returns a kind by its resource.
func kindNamed(resource string) *kind {
	for _, k := range kinds {
		if k.resource == resource {
			return k
		}
	}
	return nil
}

// kindOf returns the kind of an object.
func kindOf(object client.Object) *kind {
	gvk, err := apiutil.GVKForObject(object, testenv.Scheme())
	utilruntime.Must(err)
	for _, k := range kinds {
		if k.gvk == gvk {
			return k
		}
	}
	panic(fmt.Sprintf("%s is not served", gvk))
}

// call is what a request asks for.
type call struct {
	kind      *kind
	namespace string
	name      string
	selector  labels.Selector
	// named is the only name that a list is restricted to, if any.
	named string
}

// key names the object.
func (c *call) key() key {
	return key{c.kind, types.NamespacedName{Namespace: c.namespace, Name: c.name}}
}

// wants reports whether the request is about an object.
func (c *call) wants(object client.Object) bool {
	return (c.namespace == "" || object.GetNamespace() == c.namespace) && (c.name == "" || object.GetName() == c.name) &&
		(c.named == "" || object.GetName() == c.named) && c.selector.Matches(labels.Set(object.GetLabels()))
}

// parse reads a path like /apis/apps/v1/namespaces/shop/statefulsets/cart/status.
func parse(req *http.Request) (*call, error) {
	unknown := apierrors.NewNotFound(schema.GroupResource{}, req.URL.Path)
	parts := strings.Split(strings.Trim(req.URL.Path, "/"), "/")
	var gv schema.GroupVersion
	switch {
	case len(parts) > 2 && parts[0] == "api":
		gv, parts = schema.GroupVersion{Version: parts[1]}, parts[2:]
	case len(parts) > 3 && parts[0] == "apis":
		gv, parts = schema.GroupVersion{Group: parts[1], Version: parts[2]}, parts[3:]
	default:
		return nil, unknown
	}
	c := &call{}
	if parts[0] == "namespaces" && len(parts) > 2 {
		c.namespace, parts = parts[1], parts[2:]
	}
	if c.kind = kindNamed(parts[0]); c.kind == nil || c.kind.gvk.GroupVersion() != gv {
		return nil, unknown
	}
	if len(parts) > 1 {
		c.name = parts[1]
	}
	var err error
	c.named, _ = strings.CutPrefix(req.URL.Query().Get("fieldSelector"), "metadata.name=")
	if c.selector, err = labels.Parse(req.URL.Query().Get("labelSelector")); err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	return c, nil
}

// answer is what a server does that behaves well.
func (s *Server) answer(w http.ResponseWriter, req *http.Request) {
	if !slices.Contains(*s.tokens.Load(), strings.TrimPrefix(req.Header.Get("Authorization"), "Bearer ")) {
		reply(w, req, http.StatusUnauthorized, statusOf(apierrors.NewUnauthorized("who are you")))
		return
	}
	ours := flotillav1.GroupVersion
	switch req.URL.Path {
	case "/readyz":
		_, _ = io.WriteString(w, "ok")
	case "/version":
		_ = json.NewEncoder(w).Encode(map[string]any{"gitVersion": s.version.Load()})
	case "/apis/" + ours.String():
		s.discover(w, req)
	case "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews":
		review := &authorizationv1.SelfSubjectAccessReview{Status: authorizationv1.SubjectAccessReviewStatus{Allowed: true}}
		review.SetGroupVersionKind(authorizationv1.SchemeGroupVersion.WithKind("SelfSubjectAccessReview"))
		reply(w, req, http.StatusCreated, review)
	default:
		s.call(w, req)
	}
}

// discover lists what our CRDs serve.
func (s *Server) discover(w http.ResponseWriter, req *http.Request) {
	found := &metav1.APIResourceList{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "APIResourceList"}, GroupVersion: flotillav1.GroupVersion.String(),
	}
	for _, k := range kinds {
		if k.gvk.GroupVersion() == flotillav1.GroupVersion && s.serves(k) && k.resource != "memberclusters" {
			found.APIResources = append(found.APIResources, metav1.APIResource{Name: k.resource, Kind: k.gvk.Kind, Namespaced: k.namespaced})
		}
	}
	if len(found.APIResources) == 0 {
		reply(w, req, http.StatusNotFound, statusOf(apierrors.NewNotFound(schema.GroupResource{}, req.URL.Path)))
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(found)
}

// serves reports whether a kind is there: a custom one needs its CRD.
func (s *Server) serves(k *kind) bool {
	if k.gvk.Group != flotillav1.GroupVersion.Group {
		return true
	}
	name := types.NamespacedName{Name: k.resource + "." + k.gvk.Group}
	found, err := s.store.get(key{kindNamed("customresourcedefinitions"), name})
	if err != nil {
		return false
	}
	crd, ok := found.(*apiextensionsv1.CustomResourceDefinition)
	for i := range crd.Spec.Versions {
		if ok && crd.Spec.Versions[i].Name == k.gvk.Version && crd.Spec.Versions[i].Served {
			return true
		}
	}
	return false
}

// call serves objects.
func (s *Server) call(w http.ResponseWriter, req *http.Request) {
	c, err := parse(req)
	if err == nil && !s.serves(c.kind) {
		err = apierrors.NewNotFound(c.kind.groupResource(), c.name)
	}
	var result runtime.Object
	code := http.StatusOK
	switch {
	case err != nil:
	case req.Method == http.MethodGet && c.name == "" && isWatch(req):
		s.watch(w, req, c)
		return
	case req.Method == http.MethodGet && c.name == "":
		result, err = s.list(req, c)
	case req.Method == http.MethodGet:
		result, err = s.get(req, c)
	case req.Method == http.MethodPost:
		code = http.StatusCreated
		result, err = s.create(req, c)
	case req.Method == http.MethodPut:
		result, err = s.replace(req, c)
	case req.Method == http.MethodPatch:
		result, err = s.patch(req, c)
	case req.Method == http.MethodDelete:
		result, err = s.remove(req, c)
	default:
		err = apierrors.NewMethodNotSupported(c.kind.groupResource(), req.Method)
	}
	if err != nil {
		status := statusOf(err)
		result, code = status, int(status.Code)
	}
	reply(w, req, code, result)
}

// get returns an object, or its metadata where only that is asked for.
func (s *Server) get(req *http.Request, c *call) (runtime.Object, error) {
	object, err := s.store.get(c.key())
	if err != nil || !strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadata;") {
		return object, err
	}
	metadata := apimeta.AsPartialObjectMetadata(object)
	metadata.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadata"))
	return metadata, nil
}

// list makes a list of what is asked for. Pages are not cut.
func (s *Server) list(req *http.Request, c *call) (runtime.Object, error) {
	exactly := int64(0)
	if query := req.URL.Query(); query.Get("resourceVersionMatch") == "Exact" {
		exactly, _ = strconv.ParseInt(query.Get("resourceVersion"), 10, 64)
	}
	objects, revision, err := s.store.list(c.kind, c.wants, exactly)
	if err != nil {
		return nil, err
	}
	meta := metav1.ListMeta{ResourceVersion: strconv.FormatInt(revision, 10)}
	if strings.Contains(req.Header.Get("Accept"), "as=PartialObjectMetadataList") {
		list := &metav1.PartialObjectMetadataList{ListMeta: meta}
		list.SetGroupVersionKind(metav1.SchemeGroupVersion.WithKind("PartialObjectMetadataList"))
		for _, object := range objects {
			item := metav1.PartialObjectMetadata{}
			item.SetName(object.GetName())
			item.SetResourceVersion(object.GetResourceVersion())
			list.Items = append(list.Items, item)
		}
		return list, nil
	}
	gvk := c.kind.gvk.GroupVersion().WithKind(c.kind.gvk.Kind + "List")
	list, err := testenv.Scheme().New(gvk)
	if err != nil {
		return nil, err
	}
	items := make([]runtime.Object, 0, len(objects))
	for _, object := range objects {
		items = append(items, object)
	}
	if err := apimeta.SetList(list, items); err != nil {
		return nil, err
	}
	list.GetObjectKind().SetGroupVersionKind(gvk)
	listed, err := apimeta.ListAccessor(list)
	if err != nil {
		return nil, err
	}
	listed.SetResourceVersion(meta.ResourceVersion)
	return list, nil
}

func (s *Server) create(req *http.Request, c *call) (runtime.Object, error) {
	object, err := read(req)
	if err != nil {
		return nil, err
	}
	c.name = object.GetName()
	object.SetNamespace(c.namespace)
	return s.store.create(c.key(), object)
}

func (s *Server) replace(req *http.Request, c *call) (runtime.Object, error) {
	object, err := read(req)
	if err != nil {
		return nil, err
	}
	return s.store.update(c.key(), func(client.Object) (client.Object, error) { return object, nil })
}

// patch merges what is sent, which is near enough to what each type of patch means for objects of one writer.
func (s *Server) patch(req *http.Request, c *call) (runtime.Object, error) {
	sent, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	return s.store.update(c.key(), func(current client.Object) (client.Object, error) {
		encoded, err := json.Marshal(current)
		if err != nil {
			return nil, err
		}
		merged, err := jsonpatch.MergePatch(encoded, sent)
		if err != nil {
			return nil, apierrors.NewBadRequest(err.Error())
		}
		return decode(merged)
	})
}

func (s *Server) remove(req *http.Request, c *call) (runtime.Object, error) {
	options := &metav1.DeleteOptions{}
	body, err := io.ReadAll(req.Body)
	if err == nil && len(body) > 0 {
		_, _, err = codecs().UniversalDeserializer().Decode(body, nil, options)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if err := s.store.remove(c.key(), options); err != nil {
		return nil, err
	}
	return &metav1.Status{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"}, Status: metav1.StatusSuccess}, nil
}

// codecs read and write objects.
var codecs = sync.OnceValue(func() serializer.CodecFactory { return serializer.NewCodecFactory(testenv.Scheme()) })

// read reads the object of a request.
func read(req *http.Request) (client.Object, error) {
	body, err := io.ReadAll(req.Body)
	if err != nil {
		return nil, err
	}
	return decode(body)
}

// decode reads an object in whatever encoding.
func decode(encoded []byte) (client.Object, error) {
	decoded, _, err := codecs().UniversalDeserializer().Decode(encoded, nil, nil)
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	object, ok := decoded.(client.Object)
	if !ok {
		return nil, apierrors.NewBadRequest(fmt.Sprintf("%T is no object", decoded))
	}
	return object, nil
}

// encoding is what a request wants its answer in: protobuf, where that is asked for, else JSON.
func encoding(req *http.Request, object runtime.Object) runtime.SerializerInfo {
	wanted := runtime.ContentTypeJSON
	if _, ok := object.(interface{ MarshalTo([]byte) (int, error) }); ok && strings.Contains(req.Header.Get("Accept"), runtime.ContentTypeProtobuf) {
		wanted = runtime.ContentTypeProtobuf
	}
	info, _ := runtime.SerializerInfoForMediaType(codecs().SupportedMediaTypes(), wanted)
	return info
}

// reply sends an object.
func reply(w http.ResponseWriter, req *http.Request, code int, object runtime.Object) {
	info := encoding(req, object)
	w.Header().Set("Content-Type", info.MediaType)
	w.WriteHeader(code)
	_ = info.Serializer.Encode(object, w)
}

// isWatch reports whether a request opens a watch.
func isWatch(req *http.Request) bool {
	watching := req.URL.Query().Get("watch")
	return watching == "true" || watching == "1"
}
