package storetest
import "testing"
func checkModel(t *testing.T, factory Factory) {}
