package kafka

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// The shapes agree with the decoder for each request, in each supported version: requests filled at
// random pass as a whole, and fail when cut short.
func TestShapesAreThoseOfTheDecoder(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	for key, shape := range shapes {
		for version := range kmsg.RequestForKey(key).MaxVersion() + 1 {
			if key == 2 && version == 0 {
				continue // it has a field that no later version has, and is not supported
			}
			for range 20 {
				r := kmsg.RequestForKey(key)
				r.SetVersion(version)
				fillShape(reflect.ValueOf(r).Elem(), random)
				r.SetVersion(version)
				body := r.AppendTo(nil)
				if _, err := shape.check(version, r.IsFlexible(), body); err != nil {
					t.Fatalf("%s version %d: %v", requestName(key), version, err)
				}
				if len(body) == 0 {
					continue
				}
				if _, err := shape.check(version, r.IsFlexible(), body[:random.IntN(len(body))]); err == nil {
					t.Fatalf("%s version %d passes though it was cut short", requestName(key), version)
				}
			}
		}
	}
}

func TestEveryRequestThatIsServedHasAShape(t *testing.T) {
	for _, kind := range requests {
		if _, ok := shapes[kind.key]; !ok {
			t.Errorf("%s has no row in shapes", requestName(kind.key))
		}
	}
}

// fillShape sets all fields.
func fillShape(value reflect.Value, random *rand.Rand) {
	switch value.Kind() {
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[kmsg.Tags]() {
			tags := value.Addr().Interface().(*kmsg.Tags)
			for range random.IntN(3) {
				tags.Set(100+uint32(random.IntN(300)), make([]byte, random.IntN(200)))
			}
			return
		}
		for i := range value.NumField() {
			fillShape(value.Field(i), random)
		}
	case reflect.Slice:
		value.Set(reflect.MakeSlice(value.Type(), random.IntN(3), 4))
		fallthrough
	case reflect.Array:
		for i := range value.Len() {
			fillShape(value.Index(i), random)
		}
	case reflect.Pointer:
		value.Set(reflect.New(value.Type().Elem()))
		fillShape(value.Elem(), random)
	case reflect.String:
		value.SetString(string(bytes.Repeat([]byte("x"), random.IntN(200))))
	case reflect.Bool:
		value.SetBool(random.IntN(2) == 0)
	case reflect.Uint8, reflect.Uint16, reflect.Uint32:
		value.SetUint(uint64(random.IntN(100)))
	case reflect.Float64:
		value.SetFloat(random.Float64())
	default:
		value.SetInt(int64(random.IntN(100)))
	}
}

// A request that declares billions of tags or elements costs nothing.
func TestShapesBoundWhatARequestCosts(t *testing.T) {
	many := []byte{0xff, 0xff, 0xff, 0xff, 0x0f}
	bodies := map[string][]byte{
		"many tags":             append([]byte{1, 0, 1, 0, 0, 0, 0, 1, 0xe9, 0x07}, bytes.Repeat([]byte{9, 0}, maxTags+1)...),
		"tags at the end":       append([]byte{1, 0, 1, 0, 0, 0, 0, 1}, many...),
		"topics, few bytes":     append([]byte{1, 0, 1, 0, 0, 0, 0}, many...),
		"topics that are there": append([]byte{1, 0, 1, 0, 0, 0, 0, 0x81, 0x80, 0x80, 0x04}, make([]byte, 40<<20)...),
		"partitions":            append([]byte{1, 0, 1, 0, 0, 0, 0, 2, 2, 'x', 0x81, 0x80, 0x80, 0x04}, make([]byte, 40<<20)...),
	}
	frames := map[string][]byte{
		"tags in a tagged field": append([]byte{0, 1, 0, 15, 0, 0, 0, 1, 0xff, 0xff, 0,
			0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, // an empty Fetch
			1, 1, 17, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, many...),
	}
	for name, body := range bodies {
		frames[name] = append([]byte{0, 0, 0, 9, 0, 0, 0, 1, 0xff, 0xff, 0}, body...)
	}
	for name, frame := range frames {
		h := parseHeader(frame)
		until.Succeeds(t, name, func() error { // others may allocate at the same time
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			began := time.Now()
			if _, err := parseRequest(&h, frame); err == nil {
				t.Errorf("%s: no error", name)
			}
			took := time.Since(began)
			runtime.ReadMemStats(&after)
			if size := after.TotalAlloc - before.TotalAlloc; size > 1<<20 || took > 5*time.Second {
				return fmt.Errorf("it took %d bytes of memory and %v", size, took)
			}
			return nil
		})
	}
}

// FuzzRequest checks that decoded requests can be encoded and decoded again, without a panic or an
// endless loop.
func FuzzRequest(f *testing.F) {
	random := rand.New(rand.NewPCG(5, 6))
	for _, kind := range requests {
		for _, version := range []int16{kind.min, kind.max} {
			r := kmsg.RequestForKey(kind.key)
			r.SetVersion(version)
			fillShape(reflect.ValueOf(r).Elem(), random)
			r.SetVersion(version)
			f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)[sizeBytes:])
		}
	}
	served := kinds()
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < minRequestBytes {
			return
		}
		h := parseHeader(frame)
		kind := served[h.key]
		if kind == nil || h.version < kind.min || h.version > kind.max {
			return
		}
		r, err := parseRequest(&h, frame)
		if err != nil {
			return
		}
		again := kmsg.RequestForKey(h.key)
		again.SetVersion(h.version)
		if err := again.ReadFrom(r.AppendTo(nil)); err != nil {
			t.Errorf("%s version %d: what was decoded cannot be decoded again: %v", requestName(h.key), h.version, err)
		}
	})
}
