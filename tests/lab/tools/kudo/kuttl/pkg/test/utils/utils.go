// Package utils stands in for the harness that `kubectl kudo test` runs.
package utils

import (
	"errors"
	"testing"

	"github.com/kudobuilder/kuttl/pkg/apis/testharness/v1beta1"
)

// LoadYAMLFromFile loads nothing.
func LoadYAMLFromFile(string) ([]v1beta1.Object, error) {
	return nil, errors.New("kubectl kudo test is left out of this build")
}

// RunTests runs nothing.
func RunTests(string, string, int, func(*testing.T)) {}
