package bench

import (
	"bytes"
	"fmt"
	"net/netip"
	"strconv"
	"syscall"
)

// resolve converts an address for sockets.
func resolve(address string) (*syscall.SockaddrInet4, error) {
	parsed, err := netip.ParseAddrPort(address)
	if err != nil {
		return nil, err
	}
	if !parsed.Addr().Is4() {
		return nil, fmt.Errorf("address %s: want one of IPv4", address)
	}
	return &syscall.SockaddrInet4{Port: int(parsed.Port()), Addr: parsed.Addr().As4()}, nil
}

var (
	headEnd      = []byte("\r\n\r\n")
	lengthHeader = []byte("\r\nContent-Length: ")
)

// statusEnd is the length of a status line up to its three digits: HTTP/1.1 200.
const statusEnd = 12

// readAnswer returns the body of an answer once it is complete. It reads the form that Go's server
// writes: one answer, with its length. A status that is not 2xx is an error.
func readAnswer(in []byte) (body []byte, whole bool, err error) {
	end := bytes.Index(in, headEnd)
	if end < 0 {
		return nil, false, nil
	}
	head := in[:end]
	if len(head) < statusEnd {
		return nil, false, fmt.Errorf("an answer begins with %q", head)
	}
	length, err := lengthOf(head)
	if err != nil {
		return nil, false, err
	}
	body = in[end+len(headEnd):]
	switch {
	case len(body) < length:
		return nil, false, nil
	case len(body) > length:
		return nil, false, fmt.Errorf("%d bytes follow an answer", len(body)-length)
	case head[statusEnd-3] != '2':
		return nil, false, fmt.Errorf("status %s: %s", head[statusEnd-3:statusEnd], body)
	}
	return body, true, nil
}

// lengthOf returns the number of bytes after the head of an answer.
func lengthOf(head []byte) (int, error) {
	at := bytes.Index(head, lengthHeader)
	if at < 0 {
		if status := string(head[statusEnd-3 : statusEnd]); status != "204" {
			return 0, fmt.Errorf("an answer with status %s has no length", status)
		}
		return 0, nil
	}
	digits := head[at+len(lengthHeader):]
	if end := bytes.IndexByte(digits, '\r'); end >= 0 {
		digits = digits[:end]
	}
	length, err := strconv.Atoi(string(digits))
	if err != nil || length < 0 {
		return 0, fmt.Errorf("an answer has the length %q", digits)
	}
	return length, nil
}
