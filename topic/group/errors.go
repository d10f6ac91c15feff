package group

import "errors"

// Errors of consumer groups. They come wrapped with details.
var (
	// ErrUnknownMember reports that the group has no such member (any more): join
	// again, without a member id.
	ErrUnknownMember = errors.New("unknown member")
	// ErrIllegalGeneration reports that the group is in another generation.
	ErrIllegalGeneration = errors.New("illegal generation")
	// ErrRebalanceInProgress reports that the group rebalances: join again.
	ErrRebalanceInProgress = errors.New("group is rebalancing")
	// ErrFencedInstance reports that another member has the same instance id now.
	ErrFencedInstance = errors.New("instance has another member id")
	// ErrInconsistentProtocol reports that the member offers no protocol that all
	// other members offer too.
	ErrInconsistentProtocol = errors.New("inconsistent group protocol")
	// ErrMemberIDRequired comes with a member id: join again with it.
	ErrMemberIDRequired = errors.New("member id required")
	// ErrInvalidSession reports a session timeout outside the allowed range.
	ErrInvalidSession = errors.New("invalid session timeout")
	// ErrInvalidGroup reports that the group's name is empty or too long.
	ErrInvalidGroup = errors.New("invalid group id")
	// ErrInvalidGroupRequest reports a malformed request.
	ErrInvalidGroupRequest = errors.New("invalid group request")
	// ErrGroupFull reports that the group has the maximum number of members.
	ErrGroupFull = errors.New("group is full")
	// ErrTooManyGroups reports that the maximum number of groups exists.
	ErrTooManyGroups = errors.New("too many groups")
	// ErrGroupTooLarge reports that the members' metadata, or the leader's
	// assignments, are too large to be stored, or more than all groups may have.
	ErrGroupTooLarge = errors.New("group metadata too large")
	// ErrGroupNotEmpty reports that the group has members.
	ErrGroupNotEmpty = errors.New("group is not empty")
	// ErrNoGroup reports that the group does not exist.
	ErrNoGroup = errors.New("group does not exist")
	// ErrSubscribed reports that members of the group read the topic.
	ErrSubscribed = errors.New("group is subscribed to the topic")
	// ErrOffsetMetadataTooLarge reports that the text of a commit is too long.
	ErrOffsetMetadataTooLarge = errors.New("offset metadata too large")
	// ErrOtherProtocol reports that the members of the group use another protocol: the classic one,
	// that of consumers, or that of share groups.
	ErrOtherProtocol = errors.New("group uses another protocol")
	// ErrFencedEpoch reports that a member has another epoch than the coordinator knows: join
	// again, without any partition.
	ErrFencedEpoch = errors.New("member epoch is fenced")
	// ErrStaleEpoch reports that a member has reached another epoch: try again after the
	// next heartbeat.
	ErrStaleEpoch = errors.New("member epoch is stale")
	// ErrUnreleasedInstance reports that another member has the instance id, and has not
	// left.
	ErrUnreleasedInstance = errors.New("instance id is in use")
	// ErrUnknownAssignor reports that there is no such policy.
	ErrUnknownAssignor = errors.New("unknown assignor")
	// ErrInvalidPattern reports that a pattern of topics is no regular expression.
	ErrInvalidPattern = errors.New("invalid pattern")
	// ErrCoordinatorLoading reports that the group is being loaded or removed: try
	// again soon.
	ErrCoordinatorLoading = errors.New("coordinator is loading the group")
	// ErrCoordinatorUnavailable reports that the metadata store failed or is
	// overloaded: try again. The request may have been written nevertheless.
	ErrCoordinatorUnavailable = errors.New("coordinator is not available")
	// ErrNotCoordinator reports that another broker coordinates the group.
	ErrNotCoordinator = errors.New("not the coordinator of the group")
)
