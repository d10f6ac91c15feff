package access

import (
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"
)

// Grant gives roles and limits to those who have a name, or a value of a claim.
type Grant struct {
	// Name is that of a principal, such as jwt:alice; Claim a value of the claim of grants. One of them is set.
	Name, Claim string
	// Principal has the roles and the limits.
	Principal
}

// ParseGrant reads a grant: name:NAME or claim:VALUE, then roles and limits, separated by spaces, as in
// "claim:tills producer topic=orders*". Limits are tenant, type, room, topic and group, each as often as needed.
func ParseGrant(text string) (Grant, error) {
	var g Grant
	words := strings.Fields(text)
	if len(words) == 0 {
		return g, errors.New(`want name:NAME or claim:VALUE, then roles and limits, as in "claim:tills producer topic=orders*"`)
	}
	kind, who, _ := strings.Cut(words[0], ":")
	switch {
	case kind == "name" && who != "":
		g.Name = who
	case kind == "claim" && who != "":
		g.Claim = who
	default:
		return g, fmt.Errorf("%q: want name:NAME, such as name:jwt:alice, or claim:VALUE", words[0])
	}
	limits := map[string]*[]string{"tenant": &g.Tenants, "type": &g.Types, "room": &g.Rooms, "topic": &g.Topics, "group": &g.Groups}
	for _, word := range words[1:] {
		field, limit, limited := strings.Cut(word, "=")
		switch of := limits[field]; {
		case !limited:
			g.Roles = append(g.Roles, Role(word))
		case of == nil:
			return g, fmt.Errorf("%q: want a role, or tenant=, type=, room=, topic= or group= with a name", word)
		default:
			*of = append(*of, limit)
		}
	}
	checked := g.Principal
	checked.Name = "grant"
	return g, checked.validate(time.Time{})
}

// grants are those of the settings, in their order.
type grants []Grant

// find returns the first that matches somebody; nil: none does.
func (all grants) find(name string, claims []string) *Grant {
	for i := range all {
		if g := &all[i]; g.Name == name || g.Claim != "" && slices.Contains(claims, g.Claim) {
			return g
		}
	}
	return nil
}

// SetGrants replaces the grants. Those to whom the new ones give something else are not valid any more, and are known
// again when they come back.
func (a *Accounts) SetGrants(all []Grant) {
	list := grants(all)
	a.grants.Store(&list)
}

// granted returns somebody who has no token, with what the grants give: no roles if none matches. They are valid until
// expires, while stands says so and the grants give the same.
func (a *Accounts) granted(name string, claims []string, expires time.Time, stands func() bool) *Principal {
	list := a.grants.Load()
	who, given := &Principal{Name: name, Expires: expires, hash: a.seed("principal " + name)}, list.find(name, claims)
	if given != nil {
		of := &given.Principal
		who.Roles, who.Tenants, who.Types, who.Rooms, who.Topics, who.Groups = of.Roles, of.Tenants, of.Types, of.Rooms, of.Topics, of.Groups
	}
	who.stands = func() bool {
		now := a.grants.Load()
		return stands() && (now == list || reflect.DeepEqual(now.find(name, claims), given))
	}
	return who
}
