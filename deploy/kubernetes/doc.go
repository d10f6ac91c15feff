// Package kubernetes checks the manifests beside it against the types of Kubernetes.
package kubernetes
