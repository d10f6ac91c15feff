package main

import (
	"context"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"os"
)

// visitor is a client with cookies. It prints the answers.
type visitor struct {
	name   string
	shop   string
	client http.Client
}

func newVisitor(name, shop string) *visitor {
	jar, err := cookiejar.New(nil)
	if err != nil {
		panic(err)
	}
	return &visitor{name, shop, http.Client{Jar: jar}}
}

func (v *visitor) ask(method, path string) int {
	request, err := http.NewRequestWithContext(context.Background(), method, v.shop+path, http.NoBody)
	if err != nil {
		panic(err)
	}
	request.Header.Set("Accept", "application/json")
	response, err := v.client.Do(request)
	if err != nil {
		panic(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		panic(err)
	}
	if response.StatusCode == http.StatusAccepted {
		body = []byte("in line\n")
	}
	fmt.Printf("%s %s %s: %d %s", v.name, method, path, response.StatusCode, body)
	return response.StatusCode
}

func Example() {
	dir, err := os.MkdirTemp("", "sluice-room-")
	if err != nil {
		panic(err)
	}
	defer os.RemoveAll(dir)
	waiting, handler, err := open(context.Background(), dir, pages())
	if err != nil {
		panic(err)
	}
	server := httptest.NewServer(handler)
	alice, bob := newVisitor("alice", server.URL), newVisitor("bob", server.URL)

	alice.ask("GET", "/checkout/")
	bob.ask("GET", "/")
	bob.ask("GET", "/checkout/")
	alice.ask("POST", "/checkout/pay")
	bob.ask("GET", "/checkout/")

	server.Close()
	if err := waiting.Close(); err != nil {
		panic(err)
	}
	// Output:
	// alice GET /checkout/: 200 your turn to pay: POST /checkout/pay
	// bob GET /: 200 welcome, see /checkout/
	// bob GET /checkout/: 202 in line
	// alice POST /checkout/pay: 200 thank you
	// bob GET /checkout/: 200 your turn to pay: POST /checkout/pay
}

// The program serves until it is interrupted.
func Example_run() {
	ctx, cancel := context.WithCancel(context.Background())
	log.SetOutput(interrupt(cancel)) // once it says that it serves
	defer log.SetOutput(os.Stderr)
	fmt.Println(run(ctx, "127.0.0.1:0"))
	// Output: <nil>
}

// interrupt is called when something is written.
type interrupt func()

func (i interrupt) Write(line []byte) (int, error) {
	i()
	return len(line), nil
}
