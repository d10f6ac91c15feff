package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/internal/cli/brokers"
)

// Form is a command, or a command with some of its flags, and what it asks of a server.
type Form struct {
	// Command is the path of the command without "sluice", such as "bulk submit".
	Command string
	// Flags are names of flags, with spaces between them: a command line with one of them has this form, and one with none
	// has the form of the command without flags.
	Flags string
	// Asks are the operations of the HTTP API, the paths and the Kafka requests without which the command fails, as
	// access/table.go has them. None: the command shows no account.
	Asks []string
	// Lists means that the command shows only what its account may see, and needs no other right.
	Lists bool
}

// local are the commands that show no account: they use this machine, stores, or the secret of a cluster.
var local = []string{
	"", "help", "version", "config", "demo", "serve", "gate", "gate preview", "gate words", "restore",
	"completion bash", "completion fish", "completion powershell", "completion zsh",
	"profile list", "profile remove", "profile set",
	"bulk migrate", "topic convert", "topic migrate",
}

// forms has each command that may show an account to a server.
var forms = []Form{
	{Command: "backup", Asks: []string{"back-up"}},
	{Command: "debug bundle", Asks: []string{"debug-process"}}, // other answers that it lacks are in its errors.txt
	{Command: "doctor", Asks: []string{"GET /readyz", "Metadata", "DescribeLogDirs"}},
	{Command: "top", Asks: []string{"GET /metrics"}},

	{Command: "bulk cancel", Asks: []string{"cancel-action"}},
	{Command: "bulk cancel", Flags: selecting, Asks: []string{"change-actions"}},
	{Command: "bulk enqueue", Asks: []string{"enqueue-job"}},
	{Command: "bulk failures", Asks: []string{"list-dead-letters"}},
	{Command: "bulk list", Asks: []string{"list-actions"}},
	{Command: "bulk pause", Asks: []string{"pause-action"}},
	{Command: "bulk pause", Flags: selecting, Asks: []string{"change-actions"}},
	{Command: "bulk replay", Asks: []string{"replay-dead-letters", "get-action"}},
	{Command: "bulk replay", Flags: selecting + " cause error since until", Asks: []string{"change-actions"}},
	{Command: "bulk resume", Asks: []string{"resume-action"}},
	{Command: "bulk resume", Flags: selecting, Asks: []string{"change-actions"}},
	{Command: "bulk run"},
	{Command: "bulk run", Flags: "from-topic", Asks: takesTopic},
	{Command: "bulk schedule list", Asks: []string{"list-schedules"}},
	{Command: "bulk schedule pause", Asks: []string{"pause-schedule"}},
	{Command: "bulk schedule remove", Asks: []string{"remove-schedule"}},
	{Command: "bulk schedule resume", Asks: []string{"resume-schedule"}},
	{Command: "bulk schedule run", Asks: []string{"run-schedule"}},
	{Command: "bulk schedule set", Asks: []string{"put-schedule"}},
	{Command: "bulk schedule show", Asks: []string{"get-schedule"}},
	{Command: "bulk status", Asks: []string{"get-action"}},
	{Command: "bulk streams", Asks: []string{"list-streams"}},
	{Command: "bulk submit", Asks: uploads},
	{Command: "bulk submit", Flags: "watch", Asks: append(uploads, "watch-action")},
	{Command: "bulk submit", Flags: "from-topic", Asks: slices.Concat(takesTopic, uploads)},
	{Command: "bulk target", Asks: []string{"get-target"}},
	{Command: "bulk target", Flags: "rps concurrency pacing url-prefix tenant", Asks: []string{"get-target", "set-target"}},
	{Command: "bulk tenant", Asks: []string{"get-tenant"}},
	{Command: "bulk tenant", Flags: "weight rps concurrency max-actions max-jobs max-bytes", Asks: []string{"get-tenant", "set-tenant"}},
	{Command: "bulk waits", Asks: []string{"list-waits"}},
	{Command: "bulk watch", Asks: []string{"watch-action"}},
	{Command: "bulk why", Asks: []string{"get-job"}},
	{Command: "bulk workers", Asks: []string{"list-workers"}},

	{Command: "cluster balance", Asks: []string{"balance-cluster"}},
	{Command: "cluster drain", Asks: []string{"drain-node", "show-cluster"}},
	{Command: "cluster drain", Flags: "no-wait", Asks: []string{"drain-node"}},
	{Command: "cluster leaders", Asks: []string{"prefer-leaders"}},
	{Command: "cluster remove", Asks: []string{"remove-node"}},
	{Command: "cluster resume", Asks: []string{"resume-node"}},
	{Command: "cluster show", Asks: []string{"show-cluster", "list-reassignments"}},

	{Command: "group alter", Asks: []string{"IncrementalAlterConfigs"}},
	{Command: "group delete", Asks: []string{"DeleteGroups"}},
	{Command: "group delete", Flags: "topic", Asks: []string{"DeleteShareGroupOffsets"}},
	{Command: "group describe", Asks: []string{"DescribeGroups", "OffsetFetch", "ListOffsets"}},
	{Command: "group list", Asks: []string{"ListGroups"}, Lists: true},
	{Command: "group reset", Asks: []string{"Metadata", "DescribeGroups", "ListOffsets", "OffsetFetch", "OffsetCommit"}},
	{Command: "group reset", Flags: "dry-run", Asks: []string{"Metadata", "DescribeGroups", "ListOffsets", "OffsetFetch"}},

	{Command: "quota list", Asks: []string{"list-quotas"}},
	{Command: "quota set", Asks: []string{"set-quota"}},

	{Command: "room alter", Asks: []string{"show-room", "put-room"}},
	{Command: "room codes", Asks: []string{"make-codes"}},
	{Command: "room codes", Flags: "void", Asks: []string{"revoke-codes"}},
	{Command: "room create", Asks: []string{"put-room"}},
	{Command: "room delete", Asks: []string{"delete-room"}},
	{Command: "room list", Asks: []string{"list-rooms"}},
	{Command: "room lottery", Asks: []string{"show-lottery"}},
	{Command: "room pause", Asks: []string{"pause-room"}},
	{Command: "room resume", Asks: []string{"resume-room"}},
	{Command: "room revoke", Asks: []string{"revoke"}},
	{Command: "room rotate-keys", Asks: []string{"rotate-keys"}},
	{Command: "room rotate-keys", Flags: "revoke-old", Asks: []string{"revoke-keys"}},
	{Command: "room show", Asks: []string{"show-room"}},
	{Command: "room sold-out", Asks: []string{"sold-out-room"}},

	{Command: "token create", Asks: []string{"create-token"}},
	{Command: "token list", Asks: []string{"list-tokens"}},
	{Command: "token revoke", Asks: []string{"revoke-token"}},
	{Command: "token rotate", Asks: []string{"rotate-token"}},

	{Command: "topic alter", Asks: []string{"Metadata", "IncrementalAlterConfigs"}},
	{Command: "topic alter", Flags: "partitions", Asks: []string{"Metadata", "CreatePartitions", "change-topic"}},
	{Command: "topic alter", Flags: "replicas", Asks: []string{"Metadata", "change-topic"}},
	{Command: "topic cancel", Asks: []string{"cancel-delayed"}},
	{Command: "topic consume", Asks: reads},
	{Command: "topic consume", Flags: "group", Asks: append(reads, "OffsetFetch", "JoinGroup", "OffsetCommit")},
	{Command: "topic create", Asks: []string{"CreateTopics"}},
	{Command: "topic delayed", Asks: []string{"list-delayed"}},
	{Command: "topic delete", Asks: []string{"Metadata", "DeleteTopics"}},
	{Command: "topic describe", Asks: []string{"Metadata", "ListOffsets", "DescribeLogDirs", "DescribeConfigs"}},
	{Command: "topic list", Asks: []string{"Metadata", "ListOffsets", "DescribeLogDirs", "DescribeConfigs"}, Lists: true},
	{Command: "topic produce", Asks: []string{"Metadata", "DescribeConfigs", "InitProducerID", "Produce"}},
}

// selecting are the flags that select many actions.
const selecting = "tenant type target status all dry-run"

var (
	uploads    = []string{"create-action", "get-action", "upload-jobs", "seal-action"}
	reads      = []string{"Metadata", "ListOffsets", "Fetch"}
	takesTopic = append(reads, "DescribeGroups", "OffsetFetch", "JoinGroup", "OffsetCommit")
)

// Forms returns the forms of all commands that show an account to a server.
func Forms() []Form {
	return slices.DeleteFunc(slices.Clone(forms), func(f Form) bool { return len(f.Asks) == 0 })
}

// String returns the command, and the flags of the form with their dashes.
func (f *Form) String() string {
	if f.Flags == "" {
		return f.Command
	}
	return f.Command + " --" + strings.Join(strings.Fields(f.Flags), "|--")
}

// Needs returns the rights that the form needs, those of all that it asks. It panics where access/table.go has no row.
func (f *Form) Needs() (needs access.Right) {
	for _, ask := range f.Asks {
		needs |= rightOf(ask)
	}
	if f.Lists {
		return access.Known
	}
	return needs
}

func rightOf(ask string) access.Right {
	for key := range int16(kmsg.MaxKey + 1) {
		if right, found := access.Request(key); found && kmsg.NameForKey(key) == ask {
			return right
		}
	}
	if strings.Contains(ask, "/") {
		return access.Path(ask)
	}
	return access.Operation(ask)
}

// formOf returns the form of a command line that was parsed, nil if it shows no account.
func formOf(command *cobra.Command) (found *Form) {
	path := pathOf(command)
	for i := range forms {
		changed := func(flag string) bool { return command.Flags().Changed(flag) }
		if f := &forms[i]; f.Command == path && (f.Flags == "" || slices.ContainsFunc(strings.Fields(f.Flags), changed)) {
			found = f
		}
	}
	return found
}

func pathOf(command *cobra.Command) string {
	_, path, _ := strings.Cut(command.CommandPath(), " ")
	return path
}

// sayNeeds adds what a command needs to the refusal of a broker, which does not say which right is missing.
func sayNeeds(command *cobra.Command, err error) error {
	form := formOf(command)
	if form == nil || !brokers.Unauthorized(err) {
		return err
	}
	needs := form.Needs()
	return fmt.Errorf("%w; on a server with accounts the command needs the rights %s: want one of the roles %s", err, needs, access.JoinRoles(access.RolesWith(needs)))
}
