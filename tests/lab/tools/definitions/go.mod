module gatera.dev/lab/definitions

go 1.25.0

// Nothing of these is compiled: they hold the definitions (CRDs) of what the charts create for others.
require (
	github.com/cert-manager/cert-manager v1.21.2
	github.com/prometheus-operator/prometheus-operator v0.92.1
)
