package config

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
)

// validate checks what depends on more than one value, and the ranges that bulk
// knows.
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
	if err := c.validateTracing(); err != nil {
		return err
	}
	return c.validateSecrets()
}

// validateSecrets checks the secrets that hold in the end: what stands in the
// file may be overridden. No error shows one.
func (c *Config) validateSecrets() error {
	const key, targetKey = "webhook.secrets", "webhook.target_secrets"
	if err := c.Webhook.Secrets.Validate(); err != nil {
		return &Error{Key: key, Source: c.Source(key), Why: err.Error()}
	}
	for _, name := range slices.Sorted(maps.Keys(c.Webhook.TargetSecrets)) {
		key := targetKey + "." + name
		err := checkTarget(name)
		if err == nil {
			err = c.Webhook.TargetSecrets[name].Validate()
		}
		if err != nil {
			return &Error{Key: key, Source: c.Source(key), Why: err.Error()}
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

// validateType checks the settings of one job type. Together with what they
// override they are a config of their own, with the same ranges.
func (c *Config) validateType(name string) error {
	key := typesKey + "." + name
	if err := checkType(name); err != nil {
		return &Error{Key: key, Source: c.Source(key), Why: err.Error()}
	}
	all, own := c.Bulk, c.Bulk.For(name)
	all.Workers, all.JobTimeout, all.MaxAttempts = own.Workers, own.JobTimeout, own.MaxAttempts
	all.BackoffBase, all.BackoffCap = own.BackoffBase, own.BackoffCap
	if err := all.Validate(); err != nil {
		return c.located(errors.New(key + strings.TrimPrefix(err.Error(), "bulk")))
	}
	return nil
}

// located turns an error that begins with a key into an Error.
func (c *Config) located(err error) error {
	key, why, _ := strings.Cut(err.Error(), ": ")
	at := slices.IndexFunc(settings, func(s Setting) bool { return s.Key == key })
	if at >= 0 {
		why = fmt.Sprintf("%q: %s", format(settings[at].field(c)), why)
	}
	return &Error{Key: key, Source: c.Source(key), Why: why}
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

func checkPath(text string) error {
	if text == "" || strings.ContainsFunc(text, func(r rune) bool { return r < ' ' }) {
		return errors.New("want the path of a directory")
	}
	return nil
}

func checkAddress(text string) error {
	_, port, err := net.SplitHostPort(text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	return as(err, "host:port, such as 127.0.0.1:8080")
}

func checkFormat(text string) error {
	if text != "text" && text != "json" {
		return errors.New("want text or json")
	}
	return nil
}

func checkResponseBytes(text string) error {
	if size, err := parseSize(text); err != nil || size < 1 || size > webhook.MostResponseBytes {
		return errors.New("want from 1 to " + formatSize(webhook.MostResponseBytes))
	}
	return nil
}

func checkIdleConnections(text string) error {
	if n, err := strconv.Atoi(text); err != nil || n > webhook.MostIdleConnections {
		return fmt.Errorf("want from 1 to %d", webhook.MostIdleConnections)
	}
	return nil
}

func checkReserve(text string) error {
	if size, err := parseSize(text); err != nil || size < 1<<20 {
		return errors.New("want at least 1MiB: finishing what was accepted needs space")
	}
	return nil
}
