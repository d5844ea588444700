// Copyright The Flotilla Authors.
// SPDX-License-Identifier: Apache-2.0

package console

import (
	"errors"
	"fmt"
	"strings"

	"github.com/flotilla-dev/flotilla/internal/text"
)

// ErrReported is the error of a command that has failed and has already said why.
var ErrReported = errors.New("already reported")

// Fault is an error with a remedy.
type Fault struct {
	Err error
	// Remedy says what the user can do.
	Remedy string
}

// Error implements error.
func (f *Fault) Error() string { return text.Line(f.Err.Error()) + "; " + f.Remedy }

// Unwrap implements the interface of package errors.
func (f *Fault) Unwrap() error { return f.Err }

// Faultf returns a Fault. The remedy comes first.
func Faultf(remedy, format string, args ...any) error {
	return &Fault{Err: fmt.Errorf(format, args...), Remedy: remedy}
}

// Split returns what an error says, as one line, and its remedy, if it has one.
func Split(err error) (what, remedy string) {
	if fault := (*Fault)(nil); errors.As(err, &fault) {
		err, remedy = fault.Err, fault.Remedy
	}
	return text.Line(err.Error()), remedy
}

// BadOutput refuses a value of --output.
func BadOutput(format string, known ...string) error {
	return Faultf("use one of "+strings.Join(known, ", "), "the output format %q is not known", format)
}
