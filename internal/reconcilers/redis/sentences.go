// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package redis

import (
	"errors"
	"fmt"
	"unicode"
	"unicode/utf8"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	flotillav1 "github.com/flotilla-dev/flotilla/api/v1alpha1"
	"github.com/flotilla-dev/flotilla/internal/text"
)

func primarySentence(s *state) string {
	primary, found := s.primary()
	switch {
	case !found && s.absent.overdue(s.now):
		return s.absent.sentence(s)
	case !found:
		return fmt.Sprintf("Pod %s does not exist", podName(s.redis.Name, 0))
	case primary.stuck:
		return fmt.Sprintf("Pod %s does not terminate: %s", primary.name, primary.why)
	case primary.deleting:
		return fmt.Sprintf("Pod %s is being deleted", primary.name)
	case primary.why != "":
		return fmt.Sprintf("Pod %s is not Ready: %s", primary.name, primary.why)
	default:
		return fmt.Sprintf("Pod %s is not Ready", primary.name)
	}
}

// notReadySentence counts the Pods that are Ready, and describes the problem of the worst of the others.
func notReadySentence(s *state, c counts) string {
	text := fmt.Sprintf("%d of %d Pods are Ready, not %s", c.ready, *s.spec.Replicas, list(c.notReady))
	if ill := worstPod(s); ill != nil {
		return text + fmt.Sprintf("; Pod %s: %s", ill.name, ill.why)
	}
	if s.absent.overdue(s.now) {
		return text + "; " + s.absent.sentence(s)
	}
	return text
}

// worstPod returns the Pod to report first: the primary, then one whose problem does not resolve by itself. It is nil
// if no problem is known.
func worstPod(s *state) *pod {
	var worst *pod
	primary := s.primaryOrdinal(s.pods)
	for i := range s.pods {
		p := &s.pods[i]
		if p.ready || p.reason == "" || p.ordinal >= *s.spec.Replicas {
			continue
		}
		if worst == nil || (p.broken && !worst.broken && worst.ordinal != primary) {
			worst = p
		}
	}
	return worst
}

// emptySentence quotes the start script, whose output comes from the member, and adds what a person can do.
func emptySentence(s *state, primary pod) string {
	text := sentence(fmt.Sprintf("Pod %s does not serve: %s", primary.name, primary.emptyVolume))
	claim := s.claims[primary.ordinal]
	if claim != nil && isSentinel(&s.spec) {
		return fmt.Sprintf("%s; restore the volume, or choose the Pod that becomes the primary with annotation %s=<pod>@<UID of its claim>, for this one %s@%s",
			text, flotillav1.AnnotationForcePrimary, primary.name, claim.UID)
	}
	if claim != nil {
		return fmt.Sprintf("%s; restore the volume, or accept that the data is lost with annotation %s=%s", text, flotillav1.AnnotationForceEmptyPrimary, claim.UID)
	}
	return text + "; restore the volume"
}

func updateSentence(s *state, c counts) string {
	if len(c.stale) == 0 {
		return fmt.Sprintf("%d of %d Pods have the current spec, and %d are Ready", c.updated, *s.spec.Replicas, c.ready)
	}
	return fmt.Sprintf("%d of %d Pods have the current spec, not %s", c.updated, *s.spec.Replicas, list(c.stale))
}

// list joins the first few names: "a, b, c and 3 more".
func list(names []string) string { return text.List(names, maxListed) }

// sentence converts a text from a member to a message: one line of limited length, with a capital and without a period.
func sentence(said string) string {
	said = clause(said)
	first, size := utf8.DecodeRuneInString(said)
	if size == 0 {
		return "No message"
	}
	return string(unicode.ToUpper(first)) + said[size:]
}

// clause converts a text from a member so that it can be part of a sentence.
func clause(said string) string {
	return text.Clause(said, maxRefusal)
}

// asStatus returns the first API status in an error, also among joined ones.
func asStatus(err error, status *apierrors.APIStatus) bool { return errors.As(err, status) }
