// Package data has the commands on all data of a server: backup, restore and doctor.
package data
