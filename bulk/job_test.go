package bulk

import (
	"math"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestJobIDRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		action := rapid.StringMatching(`[A-Za-z0-9._:-]{1,128}`).Draw(t, "action")
		index := rapid.Int64Range(0, math.MaxInt64).Draw(t, "index")
		gotAction, gotIndex, err := ParseJobID(JobID(action, index))
		if err != nil || gotAction != action || gotIndex != index {
			t.Fatalf("%q and %d, error %v", gotAction, gotIndex, err)
		}
	})
	job := Job{Spec: &Spec{ID: "act_1-2"}, Index: 3}
	if got := job.ID(); got != "act_1-2-3" {
		t.Errorf("the job's id is %q", got)
	}
}

func TestParseJobIDRefuses(t *testing.T) {
	for _, id := range []string{"", "a", "-", "-1", "a-", "a-b", "a--", "a-1.5", "a-9223372036854775808", "a- 1"} {
		if action, index, err := ParseJobID(id); err == nil {
			t.Errorf("%q is job %d of %q", id, index, action)
		}
	}
}

func FuzzParseJobID(f *testing.F) {
	for _, id := range []string{"act_abc-0", "a-b-12", "a--1", "-1", "a-007", "a-+1"} {
		f.Add(id)
	}
	f.Fuzz(func(t *testing.T, id string) {
		action, index, err := ParseJobID(id)
		if err != nil {
			return
		}
		if action == "" || index < 0 {
			t.Fatalf("%q is job %d of %q", id, index, action)
		}
		if again := JobID(action, index); again != id {
			t.Fatalf("%q is read as %q: one job has two ids", id, again)
		}
	})
}

func leaseKey(t testing.TB, secret string) LeaseKey {
	t.Helper()
	key, err := NewLeaseKey([]byte(secret))
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// TestLeaseTokens: a key reads its own tokens, and none that is damaged, made of another lease's
// code, or made with another key.
func TestLeaseTokens(t *testing.T) {
	key, other := leaseKey(t, "secret"), leaseKey(t, "Secret")
	rapid.Check(t, func(t *rapid.T) {
		lease := LeaseID{rapid.Uint64().Draw(t, "action"), rapid.Uint32().Draw(t, "index"), rapid.Uint32().Draw(t, "fence")}
		token := key.Token(lease)
		if got, err := key.Parse(token); err != nil || got != lease {
			t.Fatalf("%+v, error %v; want %+v", got, err, lease)
		}
		if len(token) != 43 {
			t.Fatalf("%q has %d characters", token, len(token))
		}
		at := rapid.IntRange(0, len(token)-1).Draw(t, "damaged character")
		with := rapid.RuneFrom([]rune("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_+/= ")).Draw(t, "with")
		damaged := token[:at] + string(with) + token[at+1:]
		next := key.Token(LeaseID{lease.Action, lease.Index, lease.Fence + 1})
		// Of 43 characters the first 21 are of the id alone.
		for _, wrong := range []string{damaged, token[:21] + next[21:], next[:21] + token[21:], other.Token(lease)} {
			if got, err := key.Parse(wrong); err == nil && wrong != token && wrong != next {
				t.Fatalf("the token %q is %+v", wrong, got)
			}
		}
	})
}

func FuzzLeaseToken(f *testing.F) {
	key := leaseKey(f, "secret")
	good := key.Token(LeaseID{1, 2, 3})
	for _, token := range []string{good, "", good[:10], good + "A", good + "\n", strings.ToLower(good), "====", strings.Repeat("A", 43)} {
		f.Add(token)
	}
	f.Fuzz(func(t *testing.T, token string) {
		lease, err := key.Parse(token)
		if err == nil && key.Token(lease) != token {
			t.Fatalf("%q and %q are the same lease", token, key.Token(lease))
		}
	})
}

func TestVerdictsAndReasonsAsTheAPISpellsThem(t *testing.T) {
	for verdict, want := range map[Verdict]string{Accepted: "accepted", Duplicate: "duplicate", Expired: "expired", Unknown: "unknown", 0: "unknown"} {
		if got := verdict.String(); got != want {
			t.Errorf("verdict %d is %q, want %q", verdict, got, want)
		}
	}
	for reason, want := range map[NonReadyReason]string{RateLimited: "rate_limited", APIThrottled: "api_throttled", TransientError: "transient_error", KeyLimited: "key_limited"} {
		if got := reason.String(); got != want {
			t.Errorf("reason %d is %q, want %q", reason, got, want)
		}
	}
}
