// Package demo has the command "sluice demo": it runs jobs against a simulated target
// and visitors through two waiting rooms, and checks the results with code that
// shares nothing with the engines.
package demo
