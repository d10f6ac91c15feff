module github.com/sluice-project/sluice

go 1.26
