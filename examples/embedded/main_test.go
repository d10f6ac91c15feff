package main

func Example() {
	main()
	// Output:
	// COMPLETED 3 succeeded 1 failed 1 retried
	// count 3, sum "12.64"
	// failed: march-2 the card of mallory is blocked: not to be retried
}
