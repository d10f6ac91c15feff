// Package deploy holds what installs and runs Sluice: the files of the packages, the image, compose
// files and manifests of Kubernetes; edge has what verifies passes at a CDN or in nginx, which e2e tests. Its tests build a release, and install, serve, upgrade and
// remove it in a root that has nothing else.
//
// .goreleaser.yml lists the parts of a release. The guide is docs/install.md.
package deploy
