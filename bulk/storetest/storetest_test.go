package storetest

import (
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bulk"
)

// faultVariable names the mistake that the store in memory makes, in the process
// that TestFaults starts.
const faultVariable = "SLUICE_STORETEST_FAULT"

func memoryFactory(fault string) Factory {
	reopen := func(_ testing.TB, s bulk.Store) bulk.Store { return s.(*memory).reopen() }
	return Factory{
		Open:   func(_ testing.TB, config bulk.Config) bulk.Store { return newMemory(config, fault) },
		Reopen: reopen,
		Crash:  reopen,
	}
}

// TestMemory runs the suite against the store in memory.
func TestMemory(t *testing.T) { Run(t, memoryFactory(os.Getenv(faultVariable))) }

// TestFaults makes the store in memory err in one way at a time, and checks that
// the suite finds it: each in a process of its own, where TestMemory must fail.
func TestFaults(t *testing.T) {
	for name, where := range map[string]string{
		"create overwrites": "upload",
		"append after seal": "upload",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			command := exec.Command(os.Args[0], "-test.run=TestMemory/"+where, "-test.failfast")
			command.Env = append(os.Environ(), faultVariable+"="+name)
			output, err := command.CombinedOutput()
			if err == nil {
				t.Fatalf("the suite passes a store where %q", name)
			}
			if !strings.Contains(string(output), "--- FAIL: TestMemory/"+where) {
				t.Fatalf("the suite broke instead of failing:\n%s", output)
			}
		})
	}
}
