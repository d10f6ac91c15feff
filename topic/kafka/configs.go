package kafka

import (
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// configEntry is a setting of a topic, a group or a broker, as clients see it.
type configEntry struct {
	name     string
	value    *string
	kind     kmsg.ConfigType
	source   kmsg.ConfigSource
	readOnly bool
	doc      string
	// synonyms are the sources of the value, the effective one first.
	synonyms []configSynonym
}

type configSynonym struct {
	name, value string
	source      kmsg.ConfigSource
}

var configTypes = map[topic.SettingKind]kmsg.ConfigType{
	topic.KindText: kmsg.ConfigTypeString, topic.KindBool: kmsg.ConfigTypeBoolean,
	topic.KindInt32: kmsg.ConfigTypeInt, topic.KindInt64: kmsg.ConfigTypeLong, topic.KindDouble: kmsg.ConfigTypeDouble,
	topic.KindList: kmsg.ConfigTypeList,
}

// topicConfigs returns the settings of a topic that have a value; own are those that are set for
// it. Together they may be sent to AlterConfigs: a view has only those that views may have.
func (s *Server) topicConfigs(own map[string]string, settings topic.Settings) []configEntry {
	broker, shipped := brokerDefaults(s.broker.Config()), brokerDefaults(topic.Config{})
	var entries []configEntry
	for _, setting := range topic.SettingsTable() {
		value := valueOf(&setting, own, settings)
		if value == "" || settings.ViewOf != "" && !setting.OfViews() {
			continue
		}
		entry := configEntry{
			name: setting.Name, value: &value, kind: configTypes[setting.Kind], readOnly: setting.Fixed,
			doc: setting.Meaning + " Allowed: " + setting.Allowed + ".",
		}
		if value, set := own[setting.Name]; set {
			entry.synonyms = append(entry.synonyms, configSynonym{setting.Name, value, kmsg.ConfigSourceDynamicTopicConfig})
		}
		fallback, initial := setting.Value(broker), setting.Value(shipped)
		if setting.Broker != "" && fallback != initial {
			entry.synonyms = append(entry.synonyms, configSynonym{setting.Broker, fallback, kmsg.ConfigSourceStaticBrokerConfig})
		}
		if setting.Broker != "" {
			entry.synonyms = append(entry.synonyms, configSynonym{setting.Broker, initial, kmsg.ConfigSourceDefaultConfig})
		}
		entry.source = kmsg.ConfigSourceDefaultConfig
		if len(entry.synonyms) > 0 {
			entry.source = entry.synonyms[0].source
		}
		entries = append(entries, entry)
	}
	return entries
}

// groupConfigs returns the settings of a share group; own are those that are set for it. The source of the others is
// the server.
func (s *Server) groupConfigs(own map[string]string, settings topic.GroupSettings) []configEntry {
	var entries []configEntry
	for _, setting := range topic.GroupSettingsTable() {
		value := setting.Value(settings)
		entry := configEntry{
			name: setting.Name, value: &value, kind: configTypes[setting.Kind], source: kmsg.ConfigSourceDefaultConfig,
			doc: setting.Meaning + " Allowed: " + setting.Allowed + ".",
		}
		if _, set := own[setting.Name]; set {
			entry.source = kmsg.ConfigSourceGroupConfig
			entry.synonyms = append(entry.synonyms, configSynonym{setting.Name, value, entry.source})
		}
		entries = append(entries, entry)
	}
	return entries
}

// valueOf returns the value as set, or the default.
func valueOf(setting *topic.Setting, own map[string]string, settings topic.Settings) string {
	if value, set := own[setting.Name]; set {
		return value
	}
	return setting.Value(settings)
}

// brokerDefaults returns the settings of a topic without settings of its own.
func brokerDefaults(config topic.Config) topic.Settings {
	settings, err := topic.ParseSettings(nil, config)
	if err != nil {
		panic("kafka: the defaults of topics: " + err.Error()) // No setting, no error.
	}
	return settings
}

// brokerConfigs returns the settings of the broker, by name. All are read-only: the server's
// configuration has them.
func (s *Server) brokerConfigs() []configEntry {
	now, shipped := brokerValues(s.broker.Config(), s.broker.Node(), s.broker.DefaultReplicas()), brokerValues(topic.Config{}.WithDefaults(), s.broker.Node(), s.broker.DefaultReplicas())
	var entries []configEntry
	for _, name := range slices.Sorted(maps.Keys(now)) {
		value := now[name].value
		entry := configEntry{
			name: name, value: &value, kind: now[name].kind, readOnly: true, doc: now[name].doc,
			source: kmsg.ConfigSourceDefaultConfig,
		}
		if value != shipped[name].value {
			entry.source = kmsg.ConfigSourceStaticBrokerConfig
			entry.synonyms = append(entry.synonyms, configSynonym{name, value, entry.source})
		}
		entry.synonyms = append(entry.synonyms, configSynonym{name, shipped[name].value, kmsg.ConfigSourceDefaultConfig})
		entries = append(entries, entry)
	}
	return entries
}

type brokerValue struct {
	value string
	kind  kmsg.ConfigType
	doc   string
}

// brokerValues returns the settings of a broker, by Kafka's names.
func brokerValues(config topic.Config, node int32, replicas int16) map[string]brokerValue {
	whole := func(n int64, kind kmsg.ConfigType, doc string) brokerValue {
		return brokerValue{strconv.FormatInt(n, 10), kind, doc}
	}
	ms := func(d time.Duration, doc string) brokerValue { return whole(d.Milliseconds(), kmsg.ConfigTypeInt, doc) }
	values := map[string]brokerValue{
		"auto.create.topics.enable":  {strconv.FormatBool(!config.AutoCreateOff), kmsg.ConfigTypeBoolean, "Topics that are asked for and do not exist are made."},
		"broker.id":                  whole(int64(node), kmsg.ConfigTypeInt, "The number of this broker."),
		"default.replication.factor": whole(int64(replicas), kmsg.ConfigTypeInt, "How many brokers keep each partition."),
		"delete.topic.enable":        {"true", kmsg.ConfigTypeBoolean, "Topics can be deleted."},
		"num.partitions":             whole(int64(config.Partitions), kmsg.ConfigTypeInt, "How many partitions a topic has if its creator does not say."),

		"group.initial.rebalance.delay.ms": ms(config.Groups.InitialDelay, "How long the first rebalance of an empty group waits for more members."),
		"group.max.session.timeout.ms":     ms(config.Groups.MaxSession, "The longest session timeout of a member."),
		"group.max.size":                   whole(int64(config.Groups.MembersMax), kmsg.ConfigTypeInt, "The most members of one group."),
		"group.min.session.timeout.ms":     ms(config.Groups.MinSession, "The shortest session timeout of a member."),
		"offset.metadata.max.bytes":        whole(int64(config.Groups.OffsetMetadataBytes), kmsg.ConfigTypeInt, "The longest text that goes with a committed offset."),
		"offsets.retention.minutes":        whole(int64(config.Groups.OffsetRetention/time.Minute), kmsg.ConfigTypeInt, "How long offsets are kept after a group became empty."),
	}
	settings := brokerDefaults(config)
	for _, setting := range topic.SettingsTable() {
		if setting.Broker != "" {
			values[setting.Broker] = brokerValue{setting.Value(settings), configTypes[setting.Kind], setting.Meaning}
		}
	}
	return values
}
