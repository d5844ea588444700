// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package v1alpha1

// Conditions of a MemberCluster, besides Ready and Paused.
const (
	// ConditionCredentialsAccepted is True when the credential in the registration is the one in use.
	ConditionCredentialsAccepted = "CredentialsAccepted"
	// ConditionReachable is True when the member's API server answers.
	ConditionReachable = "Reachable"
	// ConditionAPIsServed is True when the member serves every kind, with the rights to use it.
	ConditionAPIsServed = "APIsServed"
	// ConditionClaimed is True when this hub holds the claim on the member.
	ConditionClaimed = "Claimed"
	// ConditionCachesSynced is True when everything watched in the member has been read.
	ConditionCachesSynced = "CachesSynced"
	// ConditionDrained is True when no copy is left in a member that is drained. Others do not have it.
	ConditionDrained = "Drained"
	// ConditionFrozen is True while ConfigMap flotilla-freeze stops all writes to the member.
	ConditionFrozen = "Frozen"
)

// Reasons of CredentialsAccepted. Unless said otherwise, what to do is to correct the registration Secret;
// a credential that was accepted before stays in use until the manager restarts.
const (
	// ReasonConnected says that the member is engaged.
	ReasonConnected = "Connected"
	// ReasonAccepted says that the credential in the registration is in use.
	ReasonAccepted = "Accepted"
	// ReasonParseError says that the kubeconfig is not one.
	ReasonParseError = "ParseError"
	// ReasonKeyMissing says that the Secret lacks the key of its convention.
	ReasonKeyMissing = "KeyMissing"
	// ReasonTooLarge says that the kubeconfig is larger than 256 KiB, has more than 4,096 elements, or has an RSA key of
	// more than 8,192 bits.
	ReasonTooLarge = "TooLarge"
	// ReasonContextInvalid says that the current context, its cluster or its user does not exist.
	ReasonContextInvalid = "ContextInvalid"
	// ReasonCredentialMissing says that the user has neither a token nor a client certificate.
	ReasonCredentialMissing = "CredentialMissing"
	// ReasonCAMissing says that there is no certificate-authority-data.
	ReasonCAMissing = "CAMissing"
	// ReasonExecNotAllowed says that the kubeconfig would execute a program.
	ReasonExecNotAllowed = "ExecNotAllowed"
	// ReasonAuthProviderNotAllowed says that the kubeconfig uses an auth-provider.
	ReasonAuthProviderNotAllowed = "AuthProviderNotAllowed"
	// ReasonFileReferenceNotAllowed says that the kubeconfig names a file.
	ReasonFileReferenceNotAllowed = "FileReferenceNotAllowed"
	// ReasonInsecureTLSNotAllowed says that the kubeconfig skips the verification of the server's certificate.
	ReasonInsecureTLSNotAllowed = "InsecureTLSNotAllowed"
	// ReasonBasicAuthNotAllowed says that the kubeconfig has a user name or password.
	ReasonBasicAuthNotAllowed = "BasicAuthNotAllowed"
	// ReasonImpersonationNotAllowed says that the kubeconfig impersonates.
	ReasonImpersonationNotAllowed = "ImpersonationNotAllowed"
	// ReasonProxyNotAllowed says that the kubeconfig names a proxy.
	ReasonProxyNotAllowed = "ProxyNotAllowed"
	// ReasonHTTPNotAllowed says that the server is not https.
	ReasonHTTPNotAllowed = "HTTPNotAllowed"
	// ReasonEndpointNotAllowed says that the server's address is denied by policy.
	ReasonEndpointNotAllowed = "EndpointNotAllowed"
	// ReasonInvalidName says that the cluster name is not a DNS label of at most 63 characters.
	ReasonInvalidName = "InvalidName"
	// ReasonContested says that another registration asks for this cluster name.
	ReasonContested = "Contested"
	// ReasonDuplicateCluster says that another registration leads to the same cluster.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonSelfRegistration says that the registration leads to the hub.
	ReasonSelfRegistration = "SelfRegistration"
	// ReasonMemberIsHub says that the registration leads to a cluster that is itself a Flotilla hub.
	ReasonMemberIsHub = "MemberIsHub"
	// ReasonIdentityChanged says that the registration leads to another cluster than before. See flotilla.dev/replace.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonUnauthorized says that the member refuses the credential.
	ReasonUnauthorized = "Unauthorized"
	// ReasonRotationFailed says that a new credential was tried and did not work; the old one stays in use.
	ReasonRotationFailed = "RotationFailed"
	// ReasonExpiresSoon says that the credential ends soon.
	ReasonExpiresSoon = "ExpiresSoon"
	// ReasonExpired says that the credential has ended.
	ReasonExpired = "Expired"
)

// Reasons of the other conditions of a MemberCluster.
const (
	// ReasonProbeSucceeded says that the member answers.
	ReasonProbeSucceeded = "ProbeSucceeded"
	// ReasonProbeFailed says that the member does not answer as it should.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonTimeout says that the member does not answer in time.
	ReasonTimeout = "Timeout"
	// ReasonTLSFailed says that the member's certificate does not verify.
	ReasonTLSFailed = "TLSFailed"
	// ReasonNotYetProbed says that the member has not been tried yet.
	ReasonNotYetProbed = "NotYetProbed"
	// ReasonAllServed says that every kind is served and allowed.
	ReasonAllServed = "AllServed"
	// ReasonCRDMissing says that the member lacks our CRDs, or is deleting them. Apply config/member.
	ReasonCRDMissing = "CRDMissing"
	// ReasonVersionSkew says that the member's CRDs are older than the manager's: the member is engaged, and hub objects that
	// use a field which is lacking have this reason for the cluster. Apply config/member.
	ReasonVersionSkew = "VersionSkew"
	// ReasonUnsupportedVersion says that the member's Kubernetes is too old.
	ReasonUnsupportedVersion = "UnsupportedVersion"
	// ReasonHeld says that this hub holds the claim.
	ReasonHeld = "Held"
	// ReasonClaimedByAnotherHub says that another hub holds the claim. See flotilla.dev/take-over.
	ReasonClaimedByAnotherHub = "ClaimedByAnotherHub"
	// ReasonSuperseded says that another instance of this hub holds the claim.
	ReasonSuperseded = "Superseded"
	// ReasonSynced says that everything watched has been read.
	ReasonSynced = "Synced"
	// ReasonSyncing says that the first read is going on.
	ReasonSyncing = "Syncing"
	// ReasonSyncTimeout says that the first read took too long.
	ReasonSyncTimeout = "SyncTimeout"
	// ReasonWatchStalled says that a watch went silent and is being reopened.
	ReasonWatchStalled = "WatchStalled"
	// ReasonLimitExceeded says that the member has more objects than the manager may cache.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonFrozen says that the freeze switch stops all writes to the member; the message says why.
	ReasonFrozen = "Frozen"
	// ReasonDraining says that copies are being removed from a member that is drained.
	ReasonDraining = "Draining"
	// ReasonOrphaned is in attention, for a copy that was given up with flotilla.dev/release and may still be in the member.
	ReasonOrphaned = "Orphaned"
	// ReasonAllRemoved says that no copy is left in a member that is drained.
	ReasonAllRemoved = "AllRemoved"
)
