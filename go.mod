module github.com/sluice-project/sluice

go 1.26

require (
	github.com/danielgtaylor/huma/v2 v2.37.2 // indirect
	github.com/getkin/kin-openapi v0.152.0 // indirect
	pgregory.net/rapid v1.3.0 // indirect
)
