// Package v1beta1 stands in for the harness that `kubectl kudo test` runs. KUDO 0.19 requires a version of it that no Go since
// 1.18 compiles; the other commands of its plugin do not need it.
package v1beta1

// DefaultKINDContext is never used.
const DefaultKINDContext = ""

// Kind stands for the kind of an object.
type Kind struct{ Kind string }

// GroupVersionKind is what objects of Kubernetes have.
func (kind Kind) GroupVersionKind() Kind { return kind }

// Object is what a file holds.
type Object interface{ GetObjectKind() Kind }

// TestSuite has the fields that the plugin fills in.
type TestSuite struct {
	CRDDir, KINDConfig, KINDContext, ArtifactsDir, ReportFormat string
	ManifestDirs, TestDirs                                      []string
	StartControlPlane, StartKIND, SkipDelete, SkipClusterDelete bool
	Parallel                                                    int
}

// GetObjectKind makes it an Object.
func (*TestSuite) GetObjectKind() Kind { return Kind{Kind: "TestSuite"} }
