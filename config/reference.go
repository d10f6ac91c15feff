package config

import (
	"bufio"
	"fmt"
	"io"
)

// WriteReference writes the reference of all settings, as Markdown.
func WriteReference(w io.Writer) error {
	out := bufio.NewWriter(w)
	write := func(format string, args ...any) { _, _ = fmt.Fprintf(out, format, args...) } // Flush returns the error
	write(`# Settings

"make generate" writes this page from the code. "sluice config" prints the settings in force, and the source of each.

Later sources override earlier ones: defaults, the YAML file that --config or %s names, the environment, flags.
The setting bulk.workers is the line "workers: 10" below "bulk:" in the file, SLUICE_BULK_WORKERS in the environment
and --bulk-workers among the flags. Durations are written as 500ms, 30s or 1h30m, sizes as 256MiB.

| setting | default | unit | meaning |
|---|---|---|---|
`, fileVariable)
	for _, s := range Settings() {
		write("| `%s` | %s | %s | %s |\n", s.Key, quoted(s.Default), unitName(s.Unit), s.help())
	}
	write(`
## Settings of one job type

They override the settings above for one job type, and can only be set in the file:

    bulk:
      types:
        webhook:
          workers: 50

| setting | unit | meaning |
|---|---|---|
`)
	for _, s := range TypeSettings() {
		write("| `bulk.types.TYPE.%s` | %s | %s |\n", s.Key, unitName(s.Unit), s.help())
	}
	write(`
## Rooms of the file

At the start, rooms of the file are created, or changed if they exist and differ, as a PUT to the API would. Rooms that are not in
the file, or no longer, stay as they are.

    room:
      rooms:
        shop:
          mode: teller
          capacity: 200
          pass_ttl: 10m
          routes:
            - path: /checkout/*

| setting | default | unit | meaning |
|---|---|---|---|
`)
	for _, s := range oneRoomSettings {
		write("| `room.rooms.NAME.%s` | %s | %s | %s |\n", s.Key, quoted(s.Default), unitName(s.Unit), s.help())
	}
	writeSites(write)
	return out.Flush()
}

// writeSites writes the reference of the sites of a gate.
func writeSites(write func(format string, args ...any)) {
	write(`
## Sites of a gate

A gate stands in front of many sites with a list of them in the file. The first site that has the host of a request holds, and in it the
first rule that matches. It is read again when the file changes: docs/room/gate.md.

    gate:
      http: 127.0.0.1:8000
      sites:
        - hosts: [shop.example.com]
          upstream: http://127.0.0.1:3000
          room: shop
          rules:
            - path: /static/*
            - path: /tickets/*
              room: tickets

| setting | default | unit | meaning |
|---|---|---|---|
`)
	sites, rules := siteSchema(&Site{}), siteRuleSchema(&SiteRule{})
	for _, s := range sites {
		write("| `%s[N].%s` | %s | %s | %s |\n", sitesKey, s.Key, quoted(s.Default), unitName(unitOf(s.field)), s.help())
	}
	for _, s := range rules {
		write("| `%s[N].rules[N].%s` | | %s | %s |\n", sitesKey, s.Key, unitName(unitOf(s.field)), s.help())
	}
}

// quoted returns a default for a cell of a table; it may be empty.
func quoted(value string) string {
	if value == "" {
		return ""
	}
	return "`" + value + "`"
}

func unitName(unit string) string {
	if unit == "" {
		return "text"
	}
	return unit
}
