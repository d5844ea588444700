// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	coreinformers "k8s.io/client-go/informers/core/v1"
	toolscache "k8s.io/client-go/tools/cache"
	"sigs.k8s.io/yaml"

	"github.com/flotilla-dev/flotilla/internal/text"
)

const (
	// freezeName is the ConfigMap that stops all writes while it exists.
	freezeName = "flotilla-freeze"
	// Its keys.
	freezeReason   = "reason"
	freezeSelector = "clusterSelector"
	// freezeReasonLimit is how many bytes of the reason are shown.
	freezeReasonLimit = 256
	// freezePatience is how long the start waits for the switch to be read.
	freezePatience = 10 * time.Second
)

// freeze is what the switch says. The zero value holds nobody.
type freeze struct {
	// selector holds the members whose labels match; nil holds none.
	selector labels.Selector
	// message is for people.
	message string
}

// covers says whether a member with these labels is frozen.
func (f *freeze) covers(memberLabels map[string]string) bool {
	return f.selector != nil && f.selector.Matches(labels.Set(memberLabels))
}

// readFreeze reads the switch; nil means that it does not exist. What cannot be understood freezes everything: whoever
// made it wanted something to stop.
func readFreeze(object *corev1.ConfigMap) *freeze {
	if object == nil {
		return &freeze{}
	}
	f := &freeze{selector: labels.Everything(), message: "The freeze switch stops all writes; it gives no reason"}
	if reason := text.Cut(text.Line(object.Data[freezeReason]), freezeReasonLimit); reason != "" {
		f.message = reason
	}
	selects := strings.TrimSpace(object.Data[freezeSelector])
	if selects == "" {
		return f
	}
	selector, err := parseFreezeSelector(selects)
	if err != nil {
		f.message = "The clusterSelector of the freeze switch is not a label selector, so that every member is frozen: " + f.message
		return f
	}
	f.selector = selector
	return f
}

// parseFreezeSelector reads a LabelSelector in YAML or JSON, or a label selector as kubectl takes it.
func parseFreezeSelector(text string) (labels.Selector, error) {
	selector := metav1.LabelSelector{}
	if err := yaml.UnmarshalStrict([]byte(text), &selector); err != nil {
		return labels.Parse(text)
	}
	return metav1.LabelSelectorAsSelector(&selector)
}

// watchFreeze follows the switch until ctx ends. It returns when the switch has been read, or when that takes too long:
// then everything is frozen until it is, because nobody knows that it is not meant to be.
func (p *Pool) watchFreeze(ctx context.Context) error {
	if p.cfg.Namespace == "" {
		return nil
	}
	informer := coreinformers.NewFilteredConfigMapInformer(p.hub.secrets, p.cfg.Namespace, 0, toolscache.Indexers{},
		func(options *metav1.ListOptions) {
			options.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, freezeName).String()
		})
	set := func(object any) {
		if switched, ok := object.(*corev1.ConfigMap); ok && switched.Name == freezeName {
			p.setFreeze(readFreeze(switched))
		}
	}
	registration, err := informer.AddEventHandler(toolscache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, after any) { set(after) },
		DeleteFunc: func(any) { p.setFreeze(readFreeze(nil)) },
	})
	if err != nil {
		return fmt.Errorf("preparing the watch of the freeze switch: %w", err)
	}
	go informer.RunWithContext(ctx)
	wait, cancel := context.WithTimeout(ctx, freezePatience)
	defer cancel()
	if toolscache.WaitForCacheSync(wait.Done(), registration.HasSynced) || ctx.Err() != nil {
		return nil
	}
	p.log.Info("Freezing every member until the freeze switch can be read; may the manager read it?", "namespace", p.cfg.Namespace, "name", freezeName)
	unread := &freeze{selector: labels.Everything(), message: fmt.Sprintf("ConfigMap %s/%s could not be read, so that nobody knows that writes are wanted", p.cfg.Namespace, freezeName)}
	p.setFreeze(unread)
	go func() {
		if toolscache.WaitForCacheSync(ctx.Done(), registration.HasSynced) && p.frozen.CompareAndSwap(unread, &freeze{}) {
			p.wakeAll()
		}
	}()
	return nil
}

// setFreeze puts the switch in force: for requests at once, for what the members show as soon as their actors look.
func (p *Pool) setFreeze(f *freeze) {
	p.frozen.Store(f)
	p.log.Info("Freeze switch", "frozen", f.selector != nil, "message", f.message)
	p.wakeAll()
}

// wakeAll has every member look at its registration again.
func (p *Pool) wakeAll() {
	for _, m := range p.all() {
		signal(m.changed)
	}
}
