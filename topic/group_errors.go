package topic

import "errors"

// Errors of consumer groups. They come wrapped with what was wrong.
var (
	// ErrUnknownMember says that the group has no such member (any more): join
	// anew, without a member id.
	ErrUnknownMember = errors.New("unknown member")
	// ErrIllegalGeneration says that the group is in another generation.
	ErrIllegalGeneration = errors.New("illegal generation")
	// ErrRebalanceInProgress says that the group rebalances: join again.
	ErrRebalanceInProgress = errors.New("group is rebalancing")
	// ErrFencedInstance says that another member has the same instance id now.
	ErrFencedInstance = errors.New("instance has another member id")
	// ErrInconsistentProtocol says that the protocols are none that all other
	// members have too.
	ErrInconsistentProtocol = errors.New("inconsistent group protocol")
	// ErrMemberIDRequired comes with a member id: join again with it.
	ErrMemberIDRequired = errors.New("member id required")
	// ErrInvalidSession says that the session timeout is not one that is allowed.
	ErrInvalidSession = errors.New("invalid session timeout")
	// ErrInvalidGroup says that the group's name is empty or too long.
	ErrInvalidGroup = errors.New("invalid group id")
	// ErrInvalidGroupRequest says that a request is none that can be served.
	ErrInvalidGroupRequest = errors.New("invalid group request")
	// ErrGroupFull says that the group has the most members it may have.
	ErrGroupFull = errors.New("group is full")
	// ErrTooManyGroups says that there are the most groups there may be.
	ErrTooManyGroups = errors.New("too many groups")
	// ErrGroupTooLarge says that what members bring, or what the leader
	// assigns, is too large to be kept.
	ErrGroupTooLarge = errors.New("group metadata too large")
	// ErrGroupNotEmpty says that the group has members.
	ErrGroupNotEmpty = errors.New("group is not empty")
	// ErrNoGroup says that the group does not exist.
	ErrNoGroup = errors.New("group does not exist")
	// ErrSubscribed says that members of the group read the topic.
	ErrSubscribed = errors.New("group is subscribed to the topic")
	// ErrOffsetMetadataTooLarge says that the text of a commit is too long.
	ErrOffsetMetadataTooLarge = errors.New("offset metadata too large")
	// ErrCoordinatorLoading says that the group is being loaded or removed: try
	// again soon.
	ErrCoordinatorLoading = errors.New("coordinator is loading the group")
	// ErrCoordinatorUnavailable says that the metadata store failed or has too
	// much to do: try again. What was asked for may still have been written.
	ErrCoordinatorUnavailable = errors.New("coordinator is not available")
	// ErrNotCoordinator says that another broker coordinates the group.
	ErrNotCoordinator = errors.New("not the coordinator of the group")
)
