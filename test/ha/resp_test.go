// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

//go:build ha

package ha

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"
)

const dialTimeout = time.Second

// serverError is an error that a server answered with. Its connection is as good as before.
type serverError string

func (e serverError) Error() string { return string(e) }

// conn is a connection to a server, a voter or a proxy.
type conn struct {
	net.Conn
	in      *bufio.Reader
	timeout time.Duration
}

// dial connects from the namespace of the calling thread.
func dial(address string, port int, password string, timeout time.Duration) (*conn, error) {
	raw, err := net.DialTimeout("tcp", net.JoinHostPort(address, strconv.Itoa(port)), dialTimeout)
	if err != nil {
		return nil, err
	}
	c := &conn{Conn: raw, in: bufio.NewReader(raw), timeout: timeout}
	if password == "" {
		return c, nil
	}
	if _, err := c.do("AUTH", password); err != nil {
		_ = c.Close()
		return nil, err
	}
	return c, nil
}

// do sends a command and returns its reply: a string, a list of replies, or nil.
func (c *conn) do(args ...string) (any, error) {
	if err := c.SetDeadline(time.Now().Add(c.timeout)); err != nil {
		return nil, err
	}
	var out strings.Builder
	fmt.Fprintf(&out, "*%d\r\n", len(args))
	for _, arg := range args {
		fmt.Fprintf(&out, "$%d\r\n%s\r\n", len(arg), arg)
	}
	if _, err := io.WriteString(c, out.String()); err != nil {
		return nil, err
	}
	return c.reply()
}

func (c *conn) reply() (any, error) {
	line, err := c.in.ReadString('\n')
	if err != nil {
		return nil, err
	}
	line = strings.TrimRight(line, "\r\n")
	if line == "" {
		return nil, errors.New("reading a reply: empty line")
	}
	switch line[0] {
	case '-':
		return nil, serverError(line[1:])
	case '+', ':':
		return line[1:], nil
	}
	n, err := strconv.Atoi(line[1:])
	if err != nil || n < 0 {
		return nil, err
	}
	if line[0] == '*' {
		list := make([]any, n)
		for i := range list {
			if list[i], err = c.reply(); err != nil {
				return nil, err
			}
		}
		return list, nil
	}
	text := make([]byte, n+2)
	if _, err := io.ReadFull(c.in, text); err != nil {
		return nil, err
	}
	return string(text[:n]), nil
}

// strings returns a reply as a list of strings.
func (c *conn) strings(args ...string) ([]string, error) {
	reply, err := c.do(args...)
	if err != nil {
		return nil, err
	}
	list, _ := reply.([]any)
	texts := make([]string, len(list))
	for i, element := range list {
		texts[i], _ = element.(string)
	}
	return texts, nil
}

// pairs returns a list of names and values as a map.
func (c *conn) pairs(args ...string) (map[string]string, error) {
	list, err := c.strings(args...)
	found := map[string]string{}
	for i := 0; i+1 < len(list); i += 2 {
		found[list[i]] = list[i+1]
	}
	return found, err
}

// info returns a section of INFO.
func (c *conn) info(section string) (map[string]string, error) {
	reply, err := c.do("INFO", section)
	if err != nil {
		return nil, err
	}
	text, _ := reply.(string)
	found := map[string]string{}
	for line := range strings.Lines(text) {
		if key, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			found[key] = value
		}
	}
	return found, nil
}
