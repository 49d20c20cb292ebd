package main

import "testing"

// A mutant whose text has moved on tests nothing, and would be noticed only by who runs them all.
func TestMutants_AreTextsOfTheirFiles(t *testing.T) {
	t.Chdir("../..")
	all := mutants[:len(mutants):len(mutants)]
	for _, m := range drillMutants {
		all = append(all, mutant{name: m.name, edits: m.edits})
	}
	all = append(all, mutant{name: olderBuild.name, edits: olderBuild.older})
	for _, m := range all {
		if _, _, err := m.overlay(t.TempDir()); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}
