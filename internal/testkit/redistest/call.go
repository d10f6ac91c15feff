package redistest

import (
	"bufio"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

// refusal is an error that a server has answered.
type refusal string

func (r refusal) Error() string { return string(r) }

// call sends a command on a connection of its own, as the server's account, and returns its answer:
// the elements of a list, with those of lists within it, or one string. A null is "". An
// error is a refusal, or that nothing was answered within limit.
func (s *Server) call(limit time.Duration, args ...string) (answer []string, err error) {
	connection, err := s.dial(limit)
	if err != nil {
		return nil, err
	}
	defer func() { _ = connection.Close() }() // it was only used for this
	if err := connection.SetDeadline(time.Now().Add(limit)); err != nil {
		return nil, err
	}
	reader := bufio.NewReader(connection)
	commands := [][]string{args}
	if s.options.User != "" {
		commands = [][]string{{"AUTH", s.options.User, s.options.Password}, args}
	}
	for _, command := range commands {
		if _, err := connection.Write(encode(command)); err != nil {
			return nil, err
		}
		if answer, err = decode(reader); err != nil {
			return nil, fmt.Errorf("%s: %w", strings.Join(command, " "), err)
		}
	}
	return answer, nil
}

func (s *Server) dial(limit time.Duration) (net.Conn, error) {
	dialer := &net.Dialer{Timeout: limit}
	if !s.options.TLS {
		return dialer.DialContext(context.Background(), "tcp", s.Addr())
	}
	return (&tls.Dialer{NetDialer: dialer, Config: s.authority.Client()}).DialContext(context.Background(), "tcp", s.Addr())
}

// encode writes a command in Redis's protocol, version 2.
func encode(command []string) []byte {
	text := fmt.Appendf(nil, "*%d\r\n", len(command))
	for _, arg := range command {
		text = fmt.Appendf(text, "$%d\r\n%s\r\n", len(arg), arg)
	}
	return text
}

// decode reads an answer in the same protocol.
func decode(reader *bufio.Reader) ([]string, error) {
	line, err := reader.ReadString('\n')
	if err != nil {
		return nil, err
	}
	text := strings.TrimRight(line[1:], "\r\n")
	switch line[0] {
	case '+', ':':
		return []string{text}, nil
	case '-':
		return nil, refusal(text)
	}
	n, err := strconv.Atoi(text)
	switch {
	case err != nil || line[0] != '$' && line[0] != '*':
		return nil, fmt.Errorf("somebody else answers: %q", line)
	case n < 0:
		return []string{""}, nil
	case line[0] == '$':
		data := make([]byte, n+len("\r\n"))
		_, err := io.ReadFull(reader, data)
		return []string{string(data[:n])}, err
	}
	var list []string
	for range n {
		element, err := decode(reader)
		if err != nil {
			return nil, err
		}
		list = append(list, element...)
	}
	return list, nil
}
