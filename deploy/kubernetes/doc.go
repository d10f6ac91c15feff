// Package kubernetes checks the chart in sluice/, rendered by Helm itself, against the types of Kubernetes, and keeps the
// manifests beside it in step.
package kubernetes
