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
	// ConditionCachesSynced is True when the caches of the member are filled.
	ConditionCachesSynced = "CachesSynced"
	// ConditionDrained is True when no copy is left in a member that is being drained. It is absent in other members.
	ConditionDrained = "Drained"
	// ConditionFrozen is True while ConfigMap flotilla-freeze stops all writes to the member.
	ConditionFrozen = "Frozen"
)

// Reasons of CredentialsAccepted. Unless noted otherwise, the remedy is to correct the registration Secret;
// a credential that was accepted before stays in use until the manager restarts.
const (
	// ReasonConnected means that the member is engaged.
	ReasonConnected = "Connected"
	// ReasonAccepted means that the credential in the registration is in use.
	ReasonAccepted = "Accepted"
	// ReasonParseError means that the kubeconfig does not parse.
	ReasonParseError = "ParseError"
	// ReasonKeyMissing means that the Secret lacks the key of its convention.
	ReasonKeyMissing = "KeyMissing"
	// ReasonTooLarge means that the kubeconfig is larger than 256 KiB, has more than 4,096 elements, or has an RSA key of
	// more than 8,192 bits.
	ReasonTooLarge = "TooLarge"
	// ReasonContextInvalid means that the current context, its cluster or its user does not exist.
	ReasonContextInvalid = "ContextInvalid"
	// ReasonCredentialMissing means that the user has neither a token nor a client certificate.
	ReasonCredentialMissing = "CredentialMissing"
	// ReasonCAMissing means that there is no certificate-authority-data.
	ReasonCAMissing = "CAMissing"
	// ReasonExecNotAllowed means that the kubeconfig would execute a program.
	ReasonExecNotAllowed = "ExecNotAllowed"
	// ReasonAuthProviderNotAllowed means that the kubeconfig uses an auth-provider.
	ReasonAuthProviderNotAllowed = "AuthProviderNotAllowed"
	// ReasonFileReferenceNotAllowed means that the kubeconfig names a file.
	ReasonFileReferenceNotAllowed = "FileReferenceNotAllowed"
	// ReasonInsecureTLSNotAllowed means that the kubeconfig skips the verification of the server's certificate.
	ReasonInsecureTLSNotAllowed = "InsecureTLSNotAllowed"
	// ReasonBasicAuthNotAllowed means that the kubeconfig has a user name or password.
	ReasonBasicAuthNotAllowed = "BasicAuthNotAllowed"
	// ReasonImpersonationNotAllowed means that the kubeconfig impersonates.
	ReasonImpersonationNotAllowed = "ImpersonationNotAllowed"
	// ReasonProxyNotAllowed means that the kubeconfig names a proxy.
	ReasonProxyNotAllowed = "ProxyNotAllowed"
	// ReasonHTTPNotAllowed means that the server is not https.
	ReasonHTTPNotAllowed = "HTTPNotAllowed"
	// ReasonEndpointNotAllowed means that the server's address is denied by policy.
	ReasonEndpointNotAllowed = "EndpointNotAllowed"
	// ReasonInvalidName means that the cluster name is not a DNS label of at most 63 characters.
	ReasonInvalidName = "InvalidName"
	// ReasonContested means that another registration uses this cluster name.
	ReasonContested = "Contested"
	// ReasonDuplicateCluster means that another registration leads to the same cluster.
	ReasonDuplicateCluster = "DuplicateCluster"
	// ReasonSelfRegistration means that the registration leads to the hub.
	ReasonSelfRegistration = "SelfRegistration"
	// ReasonMemberIsHub means that the registration leads to a cluster that is itself a Flotilla hub.
	ReasonMemberIsHub = "MemberIsHub"
	// ReasonIdentityChanged means that the registration leads to another cluster than before. See flotilla.dev/replace.
	ReasonIdentityChanged = "IdentityChanged"
	// ReasonUnauthorized means that the member refuses the credential.
	ReasonUnauthorized = "Unauthorized"
	// ReasonRotationFailed means that a new credential was tried and did not work; the old one stays in use.
	ReasonRotationFailed = "RotationFailed"
	// ReasonExpiresSoon means that the credential expires soon.
	ReasonExpiresSoon = "ExpiresSoon"
	// ReasonExpired means that the credential has expired.
	ReasonExpired = "Expired"
)

// Reasons of the other conditions of a MemberCluster.
const (
	// ReasonProbeSucceeded means that the member answers.
	ReasonProbeSucceeded = "ProbeSucceeded"
	// ReasonProbeFailed means that the member does not answer as expected.
	ReasonProbeFailed = "ProbeFailed"
	// ReasonTimeout means that the member does not answer in time.
	ReasonTimeout = "Timeout"
	// ReasonTLSFailed means that the verification of the member's certificate failed.
	ReasonTLSFailed = "TLSFailed"
	// ReasonNotYetProbed means that the member has not been probed yet.
	ReasonNotYetProbed = "NotYetProbed"
	// ReasonAllServed means that every kind is served and allowed.
	ReasonAllServed = "AllServed"
	// ReasonCRDMissing means that the CRDs of Flotilla are missing in the member, or are being deleted there. Apply
	// config/member.
	ReasonCRDMissing = "CRDMissing"
	// ReasonVersionSkew means that the member's CRDs are older than the manager's: the member is engaged, and hub objects
	// that use a missing field have this reason for the cluster. Apply config/member.
	ReasonVersionSkew = "VersionSkew"
	// ReasonUnsupportedVersion means that the member's Kubernetes is too old.
	ReasonUnsupportedVersion = "UnsupportedVersion"
	// ReasonHeld means that this hub holds the claim.
	ReasonHeld = "Held"
	// ReasonClaimedByAnotherHub means that another hub holds the claim. See flotilla.dev/take-over.
	ReasonClaimedByAnotherHub = "ClaimedByAnotherHub"
	// ReasonRenewalFailed means that the claim could not be renewed in time, so the member is not written.
	ReasonRenewalFailed = "RenewalFailed"
	// ReasonSuperseded means that another instance of this hub holds the claim.
	ReasonSuperseded = "Superseded"
	// ReasonSynced means that the caches are filled.
	ReasonSynced = "Synced"
	// ReasonSyncing means that the caches are being filled, or catch up after an outage.
	ReasonSyncing = "Syncing"
	// ReasonSyncTimeout means that filling the caches took too long.
	ReasonSyncTimeout = "SyncTimeout"
	// ReasonWatchStalled means that a watch delivered nothing and is being reopened, or that every watch of a resource
	// fails.
	ReasonWatchStalled = "WatchStalled"
	// ReasonLimitExceeded means that the member has more objects than the manager may cache.
	ReasonLimitExceeded = "LimitExceeded"
	// ReasonRegistrationGone means that the registration was removed: nothing is written to the member, which is offboarded
	// unless the registration returns in time.
	ReasonRegistrationGone = "RegistrationGone"
	// ReasonFrozen means that the freeze switch stops all writes to the member; the message shows the cause.
	ReasonFrozen = "Frozen"
	// ReasonDraining means that copies are being removed from a member that is being drained.
	ReasonDraining = "Draining"
	// ReasonOrphaned is used in attention, for a copy that was released with flotilla.dev/release and may still exist.
	ReasonOrphaned = "Orphaned"
	// ReasonAllRemoved means that no copy is left in a member that is being drained.
	ReasonAllRemoved = "AllRemoved"
)
