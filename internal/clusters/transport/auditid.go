// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package transport

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strconv"
	"sync/atomic"

	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/flotilla-dev/flotilla/internal/clusters"
)

const (
	// headerAuditID sets the identifier of a request in the audit log of an API server.
	headerAuditID = "Audit-ID"
	// AuditPrefix is the prefix of the audit identifier of each write to a member.
	AuditPrefix = "flotilla-"
	// UserAgent is the user agent of all requests to members.
	UserAgent = "flotilla"
)

// writes numbers the writes of this process. It starts at a random value, so that two processes do not collide.
var writes atomic.Uint64

func init() { writes.Store(uint64(rand.Uint32())) }

// auditID returns the identifier of a write: flotilla-<UID>-<generation>-<number> for the Cause in ctx, or
// flotilla-<UUID> without one, as for the claim.
func auditID(ctx context.Context) string {
	cause, known := clusters.CauseOf(ctx)
	if !known || cause.UID == "" {
		return AuditPrefix + string(uuid.NewUUID())
	}
	return fmt.Sprintf("%s%s-%d-%s", AuditPrefix, cause.UID, cause.Generation, strconv.FormatUint(writes.Add(1), 36))
}

// identify sets the user agent, unless the request has one, and, on writes, the audit identifier. client-go sets neither
// when it is given an HTTP client.
func identify(ctx context.Context, header http.Header, method string) {
	if header.Get("User-Agent") == "" {
		header.Set("User-Agent", UserAgent)
	}
	if method != http.MethodGet {
		header.Set(headerAuditID, auditID(ctx))
	}
}
