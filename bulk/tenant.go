package bulk

import (
	"cmp"
	"encoding/json"
	"fmt"
	"math"
)

// Tenant holds the settings of one tenant. The zero value of each field means its
// default.
type Tenant struct {
	// BasePriority is added to the priority of the tenant's actions, in milliseconds:
	// 60,000 orders an action as if it had entered a minute earlier. It breaks ties
	// between tenants with even shares, and never takes another tenant's share.
	// Default 0.
	BasePriority int64 `json:"base_priority"`
	// Weight is the tenant's share relative to the other active tenants. Default 1;
	// more than 0, at most 1,000.
	Weight float64 `json:"weight"`
	// RequestsPerSecond limits the attempts started for this tenant. 0, the default,
	// means no limit.
	RequestsPerSecond float64 `json:"requests_per_second"`
}

// WithDefaults returns t with unset fields at their defaults.
func (t Tenant) WithDefaults() Tenant {
	t.Weight = cmp.Or(t.Weight, 1)
	return t
}

// TargetLimits holds the settings of one target.
type TargetLimits struct {
	// RequestsPerSecond limits the attempts started against the target. 0, the default,
	// means no limit.
	RequestsPerSecond float64 `json:"requests_per_second"`
	// Concurrency limits the attempts in flight against the target. 0, the default,
	// means no limit.
	Concurrency int `json:"concurrency"`
	// Auto limits the attempts started against the target to the rate that an AutoRate
	// finds; then RequestsPerSecond is 0. Default false. In JSON it is
	// "requests_per_second": "auto".
	Auto bool `json:"-"`
}

// autoText is requests_per_second in JSON if Auto is set.
const autoText = `"auto"`

// MarshalJSON writes requests_per_second as a number or "auto", and concurrency.
func (t TargetLimits) MarshalJSON() ([]byte, error) {
	type numbers TargetLimits // without this method
	if !t.Auto {
		return json.Marshal(numbers(t))
	}
	return json.Marshal(struct {
		RequestsPerSecond json.RawMessage `json:"requests_per_second"`
		Concurrency       int             `json:"concurrency"`
	}{json.RawMessage(autoText), t.Concurrency})
}

// UnmarshalJSON reads what MarshalJSON writes. It leaves absent fields unchanged.
func (t *TargetLimits) UnmarshalJSON(raw []byte) error {
	fields := struct {
		RequestsPerSecond json.RawMessage `json:"requests_per_second"`
		Concurrency       *int            `json:"concurrency"`
	}{Concurrency: &t.Concurrency}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	switch given := fields.RequestsPerSecond; {
	case len(given) == 0:
		return nil
	case string(given) == autoText:
		t.RequestsPerSecond, t.Auto = 0, true
		return nil
	}
	t.Auto = false
	return json.Unmarshal(fields.RequestsPerSecond, &t.RequestsPerSecond)
}

// TypeLimits holds the settings of one job type.
type TypeLimits struct {
	// Concurrency is the number of workers of this type in each instance.
	// 0 means the default of the instance's Config.
	Concurrency int `json:"concurrency"`
}

// Limits holds the limits of the whole service.
type Limits struct {
	// RequestsPerSecond limits the attempts started by all tenants together.
	// 0 is no limit.
	RequestsPerSecond float64 `json:"requests_per_second"`
}

// Settings are the durable settings that can be changed while the service runs.
type Settings struct {
	// Limits is nil until it is set: until then, Config.RequestsPerSecond applies.
	Limits  *Limits
	Tenants map[string]Tenant
	Targets map[string]TargetLimits
	Types   map[string]TypeLimits
}

// SettingsChange has the new value of one setting: exactly one of the four values is
// not nil. Name is empty for Limits.
type SettingsChange struct {
	Name   string
	Limits *Limits
	Tenant *Tenant
	Target *TargetLimits
	Type   *TypeLimits
}

// SettingError is the error of a SettingsChange with a wrong field. Why describes a
// right value.
type SettingError struct{ Field, Why string }

func (e *SettingError) Error() string { return e.Field + ": " + e.Why }

// Validate returns a *SettingError if the change does not have exactly one setting, or
// its value is out of range.
func (c SettingsChange) Validate() error {
	values := 0
	for _, given := range []bool{c.Limits != nil, c.Tenant != nil, c.Target != nil, c.Type != nil} {
		if given {
			values++
		}
	}
	if values != 1 {
		return &SettingError{"setting", fmt.Sprintf("%d values: want exactly one of limits, tenant, target and type", values)}
	}
	switch {
	case c.Limits != nil && c.Name != "":
		return &SettingError{"name", "the limits of the whole service have none"}
	case c.Limits != nil:
		return validRate(c.Limits.RequestsPerSecond)
	case !namePattern.MatchString(c.Name):
		return &SettingError{"name", "want 1 to 256 printable characters"}
	case c.Tenant != nil && !(c.Tenant.Weight >= 0 && c.Tenant.Weight <= 1000):
		return &SettingError{"weight", "want more than 0, at most 1,000; or 0 for the default"}
	case c.Tenant != nil:
		return validRate(c.Tenant.RequestsPerSecond)
	case c.Target != nil && c.Target.Concurrency < 0:
		return &SettingError{"concurrency", "want at least 1, or 0 for no limit"}
	case c.Target != nil && c.Target.Auto && c.Target.RequestsPerSecond != 0:
		return &SettingError{"requests_per_second", `want a number or "auto", not both`}
	case c.Target != nil:
		return validRate(c.Target.RequestsPerSecond)
	case c.Type.Concurrency < 0 || c.Type.Concurrency > 10_000:
		return &SettingError{"concurrency", "want 1 to 10,000, or 0 for the default"}
	}
	return nil
}

func validRate(perSecond float64) error {
	if !(perSecond == 0 || perSecond >= MinRate && perSecond <= math.MaxFloat64) {
		return &SettingError{"requests_per_second", "want at least 0.001, or 0 for no limit"}
	}
	return nil
}
