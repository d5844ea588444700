// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package clusters

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/uuid"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

const (
	// headerAuditID has an API server use our identifier for a request in its audit log, instead of one of its own.
	headerAuditID = "Audit-ID"
	auditPrefix   = "flotilla-"
	userAgent     = "flotilla"
)

// causeKey marks the context of what is done for an object.
type causeKey struct{}

// cause is the object for which a member is written.
type cause struct {
	uid        types.UID
	generation int64
}

// CausedBy says that what is done with the context is done for an object: the one on the hub that placement places, or the
// one in the member that is reconciled there. The audit log of a member names it with each write.
func CausedBy(ctx context.Context, object client.Object) context.Context {
	return context.WithValue(ctx, causeKey{}, cause{uid: object.GetUID(), generation: object.GetGeneration()})
}

// writes numbers the writes of this process. It begins anywhere, so that numbers of two processes are not the same.
var writes atomic.Uint64

func init() { writes.Store(uint64(rand.Uint32())) }

// auditID identifies a write: flotilla-<UID>-<generation>-<number> of what it is made for, or flotilla-<UUID> of nothing
// when it is made for no object, like the claim.
func auditID(ctx context.Context) string {
	by, known := ctx.Value(causeKey{}).(cause)
	if !known || by.uid == "" {
		return auditPrefix + string(uuid.NewUUID())
	}
	return fmt.Sprintf("%s%s-%d-%s", auditPrefix, by.uid, by.generation, strconv.FormatUint(writes.Add(1), 36))
}

// identify says who asks and, of a write, what for. client-go sets neither when it is given an HTTP client.
func identify(ctx context.Context, header http.Header, method string) {
	header.Set("User-Agent", userAgent)
	if method != http.MethodGet {
		header.Set(headerAuditID, auditID(ctx))
	}
}
