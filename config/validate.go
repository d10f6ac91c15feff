package config

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
)

// validate checks settings that depend on each other, and the ranges that the parts
// define.
func (c *Config) validate() error {
	if err := c.Bulk.Validate(); err != nil {
		return c.located(err)
	}
	if err := c.validateTopic(); err != nil {
		return err
	}
	for _, name := range slices.Sorted(maps.Keys(c.Bulk.Types)) {
		if err := c.validateType(name); err != nil {
			return err
		}
	}
	if err := c.validateRoom(); err != nil {
		return err
	}
	if c.Public.String() != Off && c.State.IsOff() {
		return c.wrong("public", "what is public is of rooms: want another state than off")
	}
	if err := c.validateTLS(); err != nil {
		return err
	}
	if err := c.validateAccess(); err != nil {
		return err
	}
	if err := c.validateTracing(); err != nil {
		return err
	}
	return c.validateSecrets()
}

// The keys of the secrets of webhooks.
const (
	webhookSecrets = "webhook.secrets"
	targetSecrets  = "webhook.target_secrets"
)

// validateSecrets checks the secrets after all sources were read, since later sources
// override earlier ones. No error shows a secret.
func (c *Config) validateSecrets() error {
	if err := c.Webhook.Secrets.Validate(webhook.CheckSecrets); err != nil {
		return c.wrong(webhookSecrets, err.Error())
	}
	for _, name := range slices.Sorted(maps.Keys(c.Webhook.TargetSecrets)) {
		key := targetSecrets + "." + name
		err := checkTarget(name)
		if err == nil {
			err = c.Webhook.TargetSecrets[name].Validate(webhook.CheckSecrets)
		}
		if err != nil {
			return c.wrong(key, err.Error())
		}
	}
	return nil
}

// checkTarget checks the name of a target as a Spec does.
func checkTarget(name string) error {
	var wrong *bulk.SpecError
	if name == "" {
		return errors.New("want the name of a target")
	}
	_, err := bulk.Spec{Tenant: "any", Target: &bulk.Target{Name: name, URL: "http://any/"}}.Normalize()
	if errors.As(err, &wrong) && wrong.Field == "target.name" {
		return errors.New(wrong.Why)
	}
	return nil
}

// validateType checks the settings of one job type, together with the settings of all
// types that they do not override: the ranges are the same.
func (c *Config) validateType(name string) error {
	key := typesKey + "." + name
	if err := checkType(name); err != nil {
		return c.wrong(key, err.Error())
	}
	all, own := c.Bulk, c.Bulk.For(name)
	all.Workers, all.Reserve, all.JobTimeout, all.MaxAttempts = own.Workers, own.Reserve, own.JobTimeout, own.MaxAttempts
	all.BackoffBase, all.BackoffCap = own.BackoffBase, own.BackoffCap
	if err := all.Validate(); err != nil {
		return c.located(errors.New(key + strings.TrimPrefix(err.Error(), "bulk")))
	}
	return nil
}

// located turns an error that begins with a key into an Error.
func (c *Config) located(err error) error {
	key, why, _ := strings.Cut(err.Error(), ": ")
	for _, s := range c.schema() {
		if s.Key == key {
			why = fmt.Sprintf("%q: %s", format(s.field), why)
		}
	}
	return c.wrong(key, why)
}

// checkType checks the name of a job type as a Spec does.
func checkType(name string) error {
	var wrong *bulk.SpecError
	_, err := bulk.Spec{Tenant: "any", Type: name}.Normalize()
	if errors.As(err, &wrong) && wrong.Field == "type" {
		return errors.New(wrong.Why)
	}
	return nil
}
