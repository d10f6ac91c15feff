package room_test

import (
	"errors"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/room"
)

// A shop whose checkout needs a pass, but for its health: however a visitor writes a path, it needs a pass if one
// of its readings does.
func ExampleSettings_NeedsPass() {
	shop := room.Settings{
		Mode: room.Teller, Capacity: 200,
		Routes: []room.Rule{{Path: "/checkout/*"}, {Path: "/cart", Method: "POST"}},
		Bypass: []room.Rule{{Path: "/checkout/health"}},
	}
	for _, request := range []struct{ method, path string }{
		{"GET", "/"}, {"GET", "/checkout/pay"}, {"GET", "/cart"}, {"POST", "/cart"},
		{"GET", "/checkout/health"}, {"GET", "/shoes/../checkout/pay"}, {"GET", "//Checkout/pay"},
	} {
		fmt.Println(shop.NeedsPass("shop.example.com", request.path, request.method), request.method, request.path)
	}
	// Output:
	// false GET /
	// true GET /checkout/pay
	// false GET /cart
	// true POST /cart
	// false GET /checkout/health
	// true GET /shoes/../checkout/pay
	// true GET //Checkout/pay
}

// Settings that do not fit together are refused, with the name that the setting has in JSON.
func ExampleSettings_Validate() {
	for _, settings := range []room.Settings{
		{Mode: room.Teller, Capacity: 200},
		{Mode: room.Teller},
		{Mode: room.Park, Batch: 500, Interval: time.Minute},
		{Mode: room.Teller, Capacity: 200, Method: room.Lottery},
	} {
		var wrong *room.SettingsError
		if errors.As(settings.Validate(), &wrong) {
			fmt.Println("refused:", wrong.Field)
			continue
		}
		kept := settings.WithDefaults()
		fmt.Println("passes of", kept.PassTTL, "and", kept.MaxWaiting, "may wait")
	}
	// Output:
	// passes of 10m0s and 1000000 may wait
	// refused: capacity
	// refused: stay_ms
	// refused: method
}

// A lottery can be checked by everybody: the room publishes the commitment before anybody joins, and the seed when the
// places have been drawn. A ticket has its visitor's nonce.
func ExampleVerify() {
	seed := []byte("0123456789abcdef0123456789abcdef") // room.NewSeed()
	commitment := room.Commitment(seed)

	fmt.Println("this seed:", room.Verify(commitment, seed))
	fmt.Println("another:", errors.Is(room.Verify(commitment, room.NewSeed()), room.ErrSeed))
	alice, bob := room.Draw(seed, [8]byte{1}), room.Draw(seed, [8]byte{2})
	fmt.Println("alice is before bob:", alice < bob)
	// Output:
	// this seed: <nil>
	// another: true
	// alice is before bob: true
}
