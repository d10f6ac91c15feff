package bulk

import (
	"cmp"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/internal/urlprefix"
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
	// Concurrency limits the tenant's attempts in flight. 0, the default, means no limit.
	Concurrency int `json:"concurrency,omitempty"`
	// Pacing spreads RequestsPerSecond over time. Default PaceWindow.
	Pacing Pacing `json:"pacing,omitempty"`
	// Keys limit the tenant's jobs that have one key: the limits by the expression, in CEL, that
	// computes a job's key; see package keys. At most MaxKeyLimits. Default: none. It is not changed.
	Keys map[string]KeyLimit `json:"keys,omitempty"`
	// MaxActions, MaxJobs and MaxBytes bound what the tenant has stored: its unfinished actions, streams
	// among them, and their jobs and bytes of payloads; see Stored. 0, the default, means those of the Config.
	MaxActions int64 `json:"max_actions,omitempty"`
	MaxJobs    int64 `json:"max_jobs,omitempty"`
	MaxBytes   int64 `json:"max_bytes,omitempty"`
}

// Limit returns the tenant's own limit.
func (t *Tenant) Limit() Limit { return Limit{t.RequestsPerSecond, t.Concurrency, t.Pacing} }

// WithDefaults returns t with unset fields at their defaults.
func (t Tenant) WithDefaults() Tenant {
	t.Weight = cmp.Or(t.Weight, 1)
	return t
}

// validate returns a *SettingError if a value is out of range.
func (t *Tenant) validate() error {
	if !(t.Weight >= 0 && t.Weight <= 1000) {
		return &SettingError{"weight", "want more than 0, at most 1,000; or 0 for the default"}
	}
	for name, most := range map[string]int64{MaxActionsQuota: t.MaxActions, MaxJobsQuota: t.MaxJobs, MaxBytesQuota: t.MaxBytes} {
		if most < 0 {
			return &SettingError{name, "want at least 1, or 0 for no bound"}
		}
	}
	return t.Limit().Validate()
}

// TargetLimits holds the settings of one target.
type TargetLimits struct {
	// RequestsPerSecond limits the attempts started against the target. 0, the default,
	// means no limit.
	RequestsPerSecond float64
	// Concurrency limits the attempts in flight against the target. 0, the default: as many
	// as it can take, which the engine finds out.
	Concurrency int
	// Auto limits the attempts started against the target to the rate that an AutoRate
	// finds; then RequestsPerSecond is 0. Default false. In JSON it is
	// "requests_per_second": "auto".
	Auto bool
	// Pacing spreads the rate that is set or found over time. Default PaceWindow.
	Pacing Pacing
	// URLPrefix is where the target is: an http or https URL without user, query and
	// fragment. Actions that name the target give a path below it, and no attempt leaves
	// it. Empty, the default: actions that name the target give the whole URL.
	URLPrefix string
	// Secrets sign the requests to the target, as those of webhook.Options do; at most
	// MaxSecrets. They need a URLPrefix. Default: those that the handler has.
	Secrets []string
	// Tenants are those that may use the target; they need a URLPrefix. Default: all.
	Tenants []string
}

// targetFields are the fields of TargetLimits in JSON.
type targetFields struct {
	RequestsPerSecond json.RawMessage `json:"requests_per_second"`
	Concurrency       int             `json:"concurrency"`
	Pacing            Pacing          `json:"pacing,omitempty"`
	URLPrefix         string          `json:"url_prefix,omitempty"`
	Secrets           []string        `json:"secrets,omitempty"`
	Tenants           []string        `json:"tenants,omitempty"`
}

// autoText is requests_per_second in JSON if Auto is set.
const autoText = `"auto"`

// MarshalJSON writes requests_per_second as a number or "auto", and the other fields; of the last
// three those that are set.
func (t TargetLimits) MarshalJSON() ([]byte, error) {
	rate := json.RawMessage(autoText)
	if !t.Auto {
		var err error
		if rate, err = json.Marshal(t.RequestsPerSecond); err != nil {
			return nil, err
		}
	}
	return json.Marshal(targetFields{rate, t.Concurrency, t.Pacing, t.URLPrefix, t.Secrets, t.Tenants})
}

// UnmarshalJSON reads what MarshalJSON writes. It leaves absent fields unchanged.
func (t *TargetLimits) UnmarshalJSON(raw []byte) error {
	fields := targetFields{nil, t.Concurrency, t.Pacing, t.URLPrefix, slices.Clone(t.Secrets), slices.Clone(t.Tenants)}
	if err := json.Unmarshal(raw, &fields); err != nil {
		return err
	}
	t.Concurrency, t.Pacing = fields.Concurrency, fields.Pacing
	t.URLPrefix, t.Secrets, t.Tenants = fields.URLPrefix, fields.Secrets, fields.Tenants
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

// Limit returns what is set; the rate that is found is not.
func (t *TargetLimits) Limit() Limit { return Limit{t.RequestsPerSecond, t.Concurrency, t.Pacing} }

// validate returns a *SettingError if a value is out of range.
func (t *TargetLimits) validate() error {
	prefixErr := urlprefix.Check(t.URLPrefix)
	_, secretsErr := ParseSecrets(t.Secrets)
	switch {
	case t.Auto && t.RequestsPerSecond != 0:
		return &SettingError{"requests_per_second", `want a number or "auto", not both`}
	case t.URLPrefix == "" && len(t.Secrets) > 0:
		return &SettingError{"secrets", "they need a url_prefix, below which they sign; without it, remove them with []"}
	case t.URLPrefix == "" && len(t.Tenants) > 0:
		return &SettingError{"tenants", "they need a url_prefix: without it, actions name the URL under any name"}
	case t.URLPrefix != "" && prefixErr != nil:
		return &SettingError{"url_prefix", prefixErr.Error()}
	case secretsErr != nil:
		return &SettingError{"secrets", secretsErr.Error()}
	case slices.ContainsFunc(t.Tenants, func(name string) bool { return !isName(name) }):
		return &SettingError{"tenants", "want names of 1 to 256 printable characters"}
	case len(t.Tenants) > maxTargetTenants:
		return &SettingError{"tenants", "want at most 1,000"}
	}
	return t.Limit().Validate()
}

// DeniedError is the error of an action whose target is not for its tenant.
type DeniedError struct{ Tenant, Target string }

func (e *DeniedError) Error() string {
	return fmt.Sprintf("target %q is not for tenant %q: an operator names the tenants of a target", e.Target, e.Tenant)
}

// Admit returns the target that an action of a tenant asks for, with its whole URL. Inline
// reports whether targets without a URLPrefix may be called. The error is a *SpecError or a
// *DeniedError.
func (t *TargetLimits) Admit(tenant string, asked Target, inline bool) (Target, error) {
	switch {
	case t.URLPrefix == "" && !inline:
		return asked, &SpecError{"target", fmt.Sprintf(
			"target %q has no url_prefix, and actions may not call URLs of their own here (bulk.inline_targets): an operator sets where the target is with PUT /v1/targets/{name}", asked.Name)}
	case t.URLPrefix == "" && !strings.Contains(asked.URL, "://"):
		return asked, &SpecError{"target.url", fmt.Sprintf("target %q has no url_prefix: want an http or https URL with a host", asked.Name)}
	case t.URLPrefix == "":
		return asked, nil
	case len(t.Tenants) > 0 && !slices.Contains(t.Tenants, tenant):
		return asked, &DeniedError{Tenant: tenant, Target: asked.Name}
	}
	whole, err := urlprefix.Join(t.URLPrefix, asked.URL)
	if err != nil {
		return asked, &SpecError{"target.url", err.Error()}
	}
	return Target{Name: asked.Name, URL: whole}, nil
}

// maxTargetTenants bounds TargetLimits.Tenants.
const maxTargetTenants = 1000

// TypeLimits holds the settings of one job type.
type TypeLimits struct {
	// Concurrency is the number of workers of this type in each instance.
	// 0 means the default of the instance's Config.
	Concurrency int `json:"concurrency"`
	// TotalConcurrency limits the attempts in flight in all instances and remote workers.
	// 0, the default, means no limit.
	TotalConcurrency int `json:"total_concurrency,omitempty"`
	// RequestsPerSecond limits the attempts started. 0, the default, means no limit.
	RequestsPerSecond float64 `json:"requests_per_second,omitempty"`
	// Pacing spreads RequestsPerSecond over time. Default PaceWindow.
	Pacing Pacing `json:"pacing,omitempty"`
}

// Limit returns the limit of the type's handlers.
func (t *TypeLimits) Limit() Limit { return Limit{t.RequestsPerSecond, t.TotalConcurrency, t.Pacing} }

// Limits holds the limits of the whole service.
type Limits struct {
	// RequestsPerSecond limits the attempts started by all tenants together.
	// 0 is no limit.
	RequestsPerSecond float64 `json:"requests_per_second"`
	// Concurrency limits the attempts in flight of all tenants together. 0, the default,
	// means no limit.
	Concurrency int `json:"concurrency,omitempty"`
	// Pacing spreads RequestsPerSecond over time. Default PaceWindow.
	Pacing Pacing `json:"pacing,omitempty"`
}

// Limit returns the limit.
func (l *Limits) Limit() Limit { return Limit{l.RequestsPerSecond, l.Concurrency, l.Pacing} }

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
// its value is out of range. It does not compile the expressions of Tenant.Keys: the engine does.
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
		return c.Limits.Limit().Validate()
	case !isName(c.Name):
		return &SettingError{"name", "want 1 to 256 printable characters"}
	case c.Tenant != nil:
		return c.Tenant.validate()
	case c.Target != nil:
		return c.Target.validate()
	}
	return c.Type.validate(c.Name)
}

// validate returns a *SettingError if a value is out of range.
func (t *TypeLimits) validate(name string) error {
	limit := t.Limit()
	switch {
	case t.Concurrency < 0 || t.Concurrency > 10_000:
		return &SettingError{"concurrency", "want 1 to 10,000, or 0 for the default"}
	case t.TotalConcurrency < 0:
		return &SettingError{"total_concurrency", "want at least 1, or 0 for no limit"}
	case name == WebhookType && limit != (Limit{Pacing: limit.Pacing}):
		return &SettingError{"total_concurrency", "webhooks are limited by target: set requests_per_second and concurrency of their targets"}
	}
	return limit.Validate()
}

// ErrSecret is wrapped by the error about a text that is not a secret.
var ErrSecret = errors.New("not a secret")

// MaxSecrets is the maximum number of secrets of one target.
const MaxSecrets = 10

const (
	secretPrefix   = "whsec_"
	minSecretBytes = 24
	maxSecretBytes = 64
)

// ParseSecret decodes a secret, which is "whsec_" and the base64 of 24 to 64 bytes. Its error wraps
// ErrSecret, and does not quote the text.
func ParseSecret(secret string) (key []byte, err error) {
	encoded, ok := strings.CutPrefix(secret, secretPrefix)
	if !ok {
		return nil, fmt.Errorf("%w: want %q and base64", ErrSecret, secretPrefix)
	}
	// The decoder would ignore line breaks; in a secret they are a mistake.
	key, err = base64.StdEncoding.Strict().DecodeString(encoded)
	if err != nil || strings.ContainsAny(encoded, "\r\n") {
		return nil, fmt.Errorf("%w: what follows %q is not standard, padded base64", ErrSecret, secretPrefix)
	}
	if len(key) < minSecretBytes || len(key) > maxSecretBytes {
		return nil, fmt.Errorf("%w: it has %d bytes, want %d to %d", ErrSecret, len(key), minSecretBytes, maxSecretBytes)
	}
	return key, nil
}

// ParseSecrets decodes the secrets of one target: at most MaxSecrets.
func ParseSecrets(secrets []string) (keys [][]byte, err error) {
	if len(secrets) > MaxSecrets {
		return nil, fmt.Errorf("%d of them: want at most %d", len(secrets), MaxSecrets)
	}
	keys = make([][]byte, 0, len(secrets))
	for i, secret := range secrets {
		key, err := ParseSecret(secret)
		if err != nil {
			return nil, fmt.Errorf("number %d: %w", i+1, err)
		}
		keys = append(keys, key)
	}
	return keys, nil
}
