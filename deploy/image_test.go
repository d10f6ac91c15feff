package deploy

import (
	"encoding/json"
	"os"
	"strings"
	"testing"
)

// image is what a container has, by deploy/Dockerfile.
type image struct {
	user        string
	environment []string
	// command is the entry point with its arguments.
	command []string
}

// readImage reads the last stage of the Dockerfile.
func readImage(t *testing.T) (read image) {
	t.Helper()
	content, err := os.ReadFile("Dockerfile")
	if err != nil {
		t.Fatal(err)
	}
	last := strings.LastIndex(string(content), "\nFROM ")
	for line := range strings.Lines(string(content[last:])) {
		instruction, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch instruction {
		case "USER":
			read.user = rest
		case "ENV":
			read.environment = append(read.environment, rest)
		case "ENTRYPOINT", "CMD":
			var words []string
			if err := json.Unmarshal([]byte(rest), &words); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			read.command = append(read.command, words...)
		}
	}
	return read
}

// The image listens where others reach it only after somebody has said who they are.
func TestImageIsNotOpen(t *testing.T) {
	c := load(t, nil, readImage(t).environment)
	if _, err := c.Unprotected(true); err == nil {
		t.Error("the image serves everybody")
	}
}
