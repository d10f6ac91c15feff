package config

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/spelling"
)

const (
	variablePrefix = "SLUICE_"
	fileVariable   = variablePrefix + "CONFIG"
)

// nearMiss is how many letters a variable may be off the name of a setting to
// be taken for a mistake. Others are somebody else's: Kubernetes, for one, sets
// SLUICE_PORT where a service is named sluice.
const nearMiss = 2

// variablesOf returns the variables of environ that have our prefix and are not
// empty.
func variablesOf(environ []string) map[string]string {
	variables := map[string]string{}
	for _, variable := range environ {
		name, value, _ := strings.Cut(variable, "=")
		if strings.HasPrefix(name, variablePrefix) && value != "" {
			variables[name] = value
		}
	}
	return variables
}

func (c *Config) readEnvironment(variables map[string]string) error {
	names := []string{fileVariable}
	for i := range settings {
		s := &settings[i]
		if s.Variable() == "" {
			continue
		}
		names = append(names, s.Variable())
		if value, ok := variables[s.Variable()]; ok {
			if err := c.set(s, value, "environment "+s.Variable()); err != nil {
				return err
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		near, distance := spelling.Nearest(name, names)
		if distance > 0 && distance <= nearMiss {
			return &Error{Key: name, Source: "environment", Why: "there is no such setting; the nearest is " + near}
		}
	}
	return nil
}
