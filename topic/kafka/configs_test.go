package kafka

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
)

// described returns the settings of a resource, by name.
func described(t *testing.T, s *Server, version int16, kind kmsg.ConfigResourceType, name string, names ...string) map[string]kmsg.DescribeConfigsResponseResourceConfig {
	t.Helper()
	r := asked[*kmsg.DescribeConfigsRequest, *kmsg.DescribeConfigsResponse](t, s, version, &kmsg.DescribeConfigsRequest{
		Resources:       []kmsg.DescribeConfigsRequestResource{{ResourceType: kind, ResourceName: name, ConfigNames: names}},
		IncludeSynonyms: true, IncludeDocumentation: true,
	})
	if got := result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); got != "NONE" {
		t.Fatal(got)
	}
	configs := map[string]kmsg.DescribeConfigsResponseResourceConfig{}
	for _, config := range r.Resources[0].Configs {
		configs[config.Name] = config
	}
	return configs
}

func TestDescribeConfigsOfATopic(t *testing.T) {
	versions(32, func(version int16) {
		s := admin(t, topic.Config{RetentionBytes: 5000})
		orders := s.made(t, topic.Spec{Name: "orders", Settings: map[string]string{"retention.ms": "60000", "cleanup.policy": "delete", "segment.bytes": "1048576"}})
		configs := described(t, s, version, kmsg.ConfigResourceTypeTopic, "orders")
		for _, setting := range topic.SettingsTable() {
			if _, described := configs[setting.Name]; described != (setting.Value(orders.Settings()) != "") {
				t.Errorf("version %d: %s is described: %v; want those with a value", version, setting.Name, described)
			}
		}
		for _, test := range []struct {
			name, value string
			source      kmsg.ConfigSource
			kind        kmsg.ConfigType
			synonyms    string
			readOnly    bool
		}{
			{"retention.ms", "60000", 1, 5, "retention.ms=60000(DYNAMIC_TOPIC_CONFIG) log.retention.ms=604800000(DEFAULT_CONFIG)", false},
			{"retention.bytes", "5000", 4, 5, "log.retention.bytes=5000(STATIC_BROKER_CONFIG) log.retention.bytes=-1(DEFAULT_CONFIG)", false},
			{"max.message.bytes", "1048588", 5, 3, "message.max.bytes=1048588(DEFAULT_CONFIG)", false},
			{"cleanup.policy", "delete", 1, 7, "cleanup.policy=delete(DYNAMIC_TOPIC_CONFIG) log.cleanup.policy=delete(DEFAULT_CONFIG)", false},
			{"sluice.delay.enable", "false", 5, 1, "", false},
			{"segment.bytes", "1048576", 1, 3, "segment.bytes=1048576(DYNAMIC_TOPIC_CONFIG) log.segment.bytes=1073741824(DEFAULT_CONFIG)", false},
			{"min.cleanable.dirty.ratio", "0.5", 5, 6, "log.cleaner.min.cleanable.ratio=0.5(DEFAULT_CONFIG)", false},
		} {
			got := configs[test.name]
			value := ""
			if got.Value != nil {
				value = *got.Value
			}
			if value != test.value || got.ReadOnly != test.readOnly {
				t.Errorf("version %d: %s is %q, read only %v", version, test.name, value, got.ReadOnly)
			}
			if version == 0 {
				if got.IsDefault != (test.source == kmsg.ConfigSourceDefaultConfig) {
					t.Errorf("%s is the default: %v", test.name, got.IsDefault)
				}
				continue
			}
			var synonyms []string
			for _, synonym := range got.ConfigSynonyms {
				synonyms = append(synonyms, synonym.Name+"="+*synonym.Value+"("+synonym.Source.String()+")")
			}
			if got.Source != test.source || strings.Join(synonyms, " ") != test.synonyms {
				t.Errorf("version %d: %s comes from %v, %v; want %v, %s", version, test.name, got.Source, synonyms, test.source, test.synonyms)
			}
			if version >= 3 && (got.ConfigType != test.kind || got.Documentation == nil || !strings.Contains(*got.Documentation, "Allowed: ")) {
				t.Errorf("version %d: %s has type %v and the text %v", version, test.name, got.ConfigType, got.Documentation)
			}
		}
		if doc := configs["segment.bytes"].Documentation; version >= 3 && (doc == nil || !strings.HasPrefix(*doc, "No effect here: ")) {
			t.Errorf("version %d: a setting without effect is described as %v", version, doc)
		}
		if some := described(t, s, version, kmsg.ConfigResourceTypeTopic, "orders", "retention.ms", "nosuch"); len(some) != 1 || some["retention.ms"].Value == nil {
			t.Errorf("version %d: one setting that is there and one that is not: %v", version, some)
		}
	})
}

func TestDescribeConfigsOfABroker(t *testing.T) {
	s := admin(t, topic.Config{Partitions: 6, Retention: -1, Groups: topic.GroupsConfig{MaxSession: time.Hour}})
	configs := described(t, s, 4, kmsg.ConfigResourceTypeBroker, "1")
	for name, want := range map[string]string{
		"num.partitions": "6 STATIC_BROKER_CONFIG", "log.retention.ms": "-1 STATIC_BROKER_CONFIG", "message.max.bytes": "1048588 DEFAULT_CONFIG",
		"group.max.session.timeout.ms": "3600000 STATIC_BROKER_CONFIG", "offsets.retention.minutes": "10080 DEFAULT_CONFIG",
		"auto.create.topics.enable": "true DEFAULT_CONFIG", "broker.id": "1 DEFAULT_CONFIG", "min.insync.replicas": "1 DEFAULT_CONFIG",
	} {
		config := configs[name]
		if config.Value == nil || *config.Value+" "+config.Source.String() != want || !config.ReadOnly {
			t.Errorf("%s: %+v, want %s", name, config, want)
		}
	}
	if cluster := described(t, s, 4, kmsg.ConfigResourceTypeBroker, ""); len(cluster) != 0 {
		t.Errorf("the defaults of a cluster: %v, want none", cluster)
	}
}

func TestDescribeConfigsRefuses(t *testing.T) {
	s := admin(t, topic.Config{})
	for _, test := range []struct {
		kind kmsg.ConfigResourceType
		name string
		want string
	}{
		{kmsg.ConfigResourceTypeTopic, "nosuch", "UNKNOWN_TOPIC_OR_PARTITION: topic does not exist"},
		{kmsg.ConfigResourceTypeBroker, "7", "INVALID_REQUEST: this is broker 1"},
		{kmsg.ConfigResourceTypeGroupConfig, "", "INVALID_GROUP_ID: want 1 to"},
		{kmsg.ConfigResourceTypeBrokerLogger, "1", "INVALID_REQUEST: there are those of topics, groups and brokers"},
	} {
		r := asked[*kmsg.DescribeConfigsRequest, *kmsg.DescribeConfigsResponse](t, s, 4, &kmsg.DescribeConfigsRequest{
			Resources: []kmsg.DescribeConfigsRequestResource{{ResourceType: test.kind, ResourceName: test.name}},
		})
		if got := result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); !matches(got, test.want) || len(r.Resources[0].Configs) > 0 {
			t.Errorf("%v %s: %s, want %s", test.kind, test.name, got, test.want)
		}
	}
}

func TestAlterConfigs(t *testing.T) {
	text := kmsg.StringPtr
	versions(33, func(version int16) {
		s := admin(t, topic.Config{})
		orders := s.made(t, topic.Spec{Name: "orders", Settings: map[string]string{"retention.ms": "1", "retention.bytes": "2"}})
		alter := func(dryRun bool, name string, configs ...kmsg.AlterConfigsRequestResourceConfig) string {
			r := asked[*kmsg.AlterConfigsRequest, *kmsg.AlterConfigsResponse](t, s, version, &kmsg.AlterConfigsRequest{
				Resources: []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name, Configs: configs}}, ValidateOnly: dryRun,
			})
			return result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)
		}
		one := kmsg.AlterConfigsRequestResourceConfig{Name: "max.message.bytes", Value: text("100")}
		if got := alter(true, "orders", one); got != "NONE" || orders.Settings().MaxMessageBytes == 100 {
			t.Errorf("version %d: only checked: %s, %v", version, got, orders.Own())
		}
		for _, test := range []struct {
			name    string
			configs []kmsg.AlterConfigsRequestResourceConfig
			want    string
		}{
			{"orders", []kmsg.AlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: text("x")}}, "INVALID_CONFIG: want a whole number"},
			{"orders", []kmsg.AlterConfigsRequestResourceConfig{one, one}, "INVALID_REQUEST: more than once"},
			{"orders", []kmsg.AlterConfigsRequestResourceConfig{{Name: "sluice.view.of", Value: text("x")}}, "INVALID_CONFIG: cannot be changed"},
			{"nosuch", nil, "UNKNOWN_TOPIC_OR_PARTITION: topic does not exist"},
		} {
			if got := alter(false, test.name, test.configs...); !matches(got, test.want) || len(orders.Own()) != 2 {
				t.Errorf("version %d: %s, want %s; then %v", version, got, test.want, orders.Own())
			}
		}
		if got := alter(false, "orders", one, kmsg.AlterConfigsRequestResourceConfig{Name: "retention.ms"}); got != "NONE" || len(orders.Own()) != 1 || orders.Own()["max.message.bytes"] != "100" {
			t.Errorf("version %d: %s, %v: want max.message.bytes alone", version, got, orders.Own())
		}
	})
}

// The answer to DescribeConfigs can be sent to AlterConfigs as it is, which then changes nothing.
func TestDescribedConfigsCanBeAltered(t *testing.T) {
	s := admin(t, topic.Config{})
	s.made(t, topic.Spec{Name: "orders", Settings: map[string]string{"segment.bytes": "1048576", "compression.type": "zstd"}})
	s.made(t, topic.Spec{Name: "paid", Settings: map[string]string{"sluice.view.of": "orders", "sluice.view.where": "true", "flush.ms": "9"}})
	for _, name := range []string{"orders", "paid"} {
		before := described(t, s, 4, kmsg.ConfigResourceTypeTopic, name)
		request := kmsg.AlterConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: name}
		for _, config := range before {
			request.Configs = append(request.Configs, kmsg.AlterConfigsRequestResourceConfig{Name: config.Name, Value: config.Value})
		}
		r := asked[*kmsg.AlterConfigsRequest, *kmsg.AlterConfigsResponse](t, s, 2, &kmsg.AlterConfigsRequest{Resources: []kmsg.AlterConfigsRequestResource{request}})
		if got := result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); got != "NONE" {
			t.Errorf("%s: %s", name, got)
		}
		after := described(t, s, 4, kmsg.ConfigResourceTypeTopic, name)
		for key, config := range before {
			if now := after[key]; now.Value == nil || *now.Value != *config.Value {
				t.Errorf("%s: %s is %v, was %q", name, key, now.Value, *config.Value)
			}
		}
		if len(after) != len(before) {
			t.Errorf("%s: %d settings, %d before", name, len(after), len(before))
		}
	}
}

func TestIncrementalAlterConfigs(t *testing.T) {
	text := kmsg.StringPtr
	versions(44, func(version int16) {
		s := admin(t, topic.Config{})
		orders := s.made(t, topic.Spec{Name: "orders", Settings: map[string]string{"retention.ms": "1", "retention.bytes": "2"}})
		for _, test := range []struct {
			kind    kmsg.ConfigResourceType
			name    string
			configs []kmsg.IncrementalAlterConfigsRequestResourceConfig
			dryRun  bool
			want    string
		}{
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Op: 1}}, true, "NONE"},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Value: text("-5")}}, false, "INVALID_CONFIG: -1 for ever"},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms"}}, false, "INVALID_CONFIG: has no value"},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Op: 2, Value: text("5")}}, false, "INVALID_CONFIG: is no list"},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "cleanup.policy", Op: 2, Value: text("compacted")}}, false, `INVALID_CONFIG: "delete,compacted"`},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "cleanup.policy", Op: 3, Value: text("delete")}}, false, `INVALID_CONFIG: cleanup.policy: ""`},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "cleanup.policy", Op: 9, Value: text("delete")}}, false, "INVALID_REQUEST: want 0 to 3"},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "segment.ms", Value: text("0")}}, false, "INVALID_CONFIG: want a whole number, 1 or more"},
			{2, "orders", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "message.format.version", Op: 1}}, false, "INVALID_CONFIG: there is no message.format.version"},
			{2, "nosuch", nil, false, "UNKNOWN_TOPIC_OR_PARTITION: topic does not exist"},
			{4, "1", nil, false, "INVALID_REQUEST: set where it is started"},
			{8, "1", nil, false, "INVALID_REQUEST: those of topics and groups can be altered"},
			{32, "g", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.delivery.count.limit", Value: text("9")}}, true, "NONE"},
			{32, "g", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.delivery.count.limit", Value: text("0")}}, false, "INVALID_CONFIG: from 1 to 100"},
			{32, "g", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.delivery.count.limit"}}, false, "INVALID_CONFIG: has no value"},
			{32, "g", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.auto.offset.reset", Op: 2, Value: text("latest")}}, false, "INVALID_CONFIG: is no list"},
			{32, "g", []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "retention.ms", Op: 1}}, false, "INVALID_CONFIG: groups have no"},
			{32, "", nil, false, "INVALID_GROUP_ID: want 1 to"},
		} {
			r := asked[*kmsg.IncrementalAlterConfigsRequest, *kmsg.IncrementalAlterConfigsResponse](t, s, version, &kmsg.IncrementalAlterConfigsRequest{
				Resources: []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: test.kind, ResourceName: test.name, Configs: test.configs}}, ValidateOnly: test.dryRun,
			})
			if got := result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); !matches(got, test.want) || len(orders.Own()) != 2 {
				t.Errorf("version %d: %s, want %s; then %v", version, got, test.want, orders.Own())
			}
		}
		resource := kmsg.IncrementalAlterConfigsRequestResource{ResourceType: 2, ResourceName: "orders", Configs: []kmsg.IncrementalAlterConfigsRequestResourceConfig{
			{Name: "retention.ms", Op: 1}, {Name: "retention.bytes", Value: text("7")}, {Name: "cleanup.policy", Op: 2, Value: text("delete")},
		}}
		r := asked[*kmsg.IncrementalAlterConfigsRequest, *kmsg.IncrementalAlterConfigsResponse](t, s, version, &kmsg.IncrementalAlterConfigsRequest{
			Resources: []kmsg.IncrementalAlterConfigsRequestResource{resource},
		})
		own := orders.Own()
		if r.Resources[0].ErrorCode != 0 || len(own) != 2 || own["retention.bytes"] != "7" || own["cleanup.policy"] != "delete" {
			t.Errorf("version %d: %v, %v", version, r.Resources[0], own)
		}
		r = asked[*kmsg.IncrementalAlterConfigsRequest, *kmsg.IncrementalAlterConfigsResponse](t, s, version, &kmsg.IncrementalAlterConfigsRequest{
			Resources: []kmsg.IncrementalAlterConfigsRequestResource{resource, resource},
		})
		if got := result(r.Resources[1].ErrorCode, r.Resources[1].ErrorMessage); !matches(got, "INVALID_REQUEST: more than once") {
			t.Errorf("version %d: the same topic twice: %s", version, got)
		}
	})
}

// The settings of a share group, which need not exist, are altered and described; as many groups have some as there may be.
func TestGroupConfigs(t *testing.T) {
	text := kmsg.StringPtr
	s := admin(t, topic.Config{Shares: topic.SharesConfig{Deliveries: 7}, Groups: topic.GroupsConfig{GroupsMax: 1}})
	wantGroup := func(what string, want map[string]string) {
		t.Helper()
		got := map[string]string{}
		for name, config := range described(t, s, 4, kmsg.ConfigResourceTypeGroupConfig, "g") {
			if config.Documentation == nil || !strings.Contains(*config.Documentation, "Allowed: ") || config.ReadOnly {
				t.Errorf("%s: %s is %+v", what, name, config)
			}
			got[name] = *config.Value + " " + config.Source.String()
		}
		for name, value := range want {
			if got[name] != value {
				t.Errorf("%s: %s is %s; want %s", what, name, got[name], value)
			}
		}
		if len(got) != len(topic.GroupSettingsTable()) {
			t.Errorf("%s: %d settings", what, len(got))
		}
	}
	incrementally := func(name string, configs ...kmsg.IncrementalAlterConfigsRequestResourceConfig) string {
		r := asked[*kmsg.IncrementalAlterConfigsRequest, *kmsg.IncrementalAlterConfigsResponse](t, s, 1, &kmsg.IncrementalAlterConfigsRequest{
			Resources: []kmsg.IncrementalAlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: name, Configs: configs}}})
		return result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage)
	}
	wantGroup("at first", map[string]string{"share.delivery.count.limit": "7 DEFAULT_CONFIG", "errors.deadletterqueue.topic.name": " DEFAULT_CONFIG"})
	set := []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: "share.record.lock.duration.ms", Value: text("1000")}, {Name: "errors.deadletterqueue.topic.name", Value: text("dead")}}
	if got := incrementally("g", set...); got != "NONE" {
		t.Fatal(got)
	}
	if got := incrementally("other", set...); !matches(got, "POLICY_VIOLATION: too many groups") {
		t.Errorf("settings of another group: %s", got)
	}
	if got := incrementally("g", kmsg.IncrementalAlterConfigsRequestResourceConfig{Name: "share.record.lock.duration.ms", Op: 1}); got != "NONE" {
		t.Error(got)
	}
	wantGroup("when one is deleted", map[string]string{"share.record.lock.duration.ms": "30000 DEFAULT_CONFIG", "errors.deadletterqueue.topic.name": "dead GROUP_CONFIG"})
	r := asked[*kmsg.AlterConfigsRequest, *kmsg.AlterConfigsResponse](t, s, 2, &kmsg.AlterConfigsRequest{
		Resources: []kmsg.AlterConfigsRequestResource{{ResourceType: kmsg.ConfigResourceTypeGroupConfig, ResourceName: "g"}}})
	if got := result(r.Resources[0].ErrorCode, r.Resources[0].ErrorMessage); got != "NONE" {
		t.Error(got)
	}
	wantGroup("when all are replaced", map[string]string{"errors.deadletterqueue.topic.name": " DEFAULT_CONFIG"})
	if got := incrementally("other", set...); got != "NONE" {
		t.Errorf("settings of another group, when the first has none: %s", got)
	}
}
