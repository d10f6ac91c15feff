// Package kubernetes checks the chart in sluice/, rendered by Helm itself, against the types of Kubernetes, and keeps the
// manifests beside it in step. It checks the chart, the compose files and the image's file with the libraries of the tools that read
// them too: this module may have them, and that of the root may not.
package kubernetes
